//! Spans and metrics, with the SDK of OpenTelemetry.

use std::collections::BTreeMap;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::trace::{SpanId, SpanKind, Status, TraceContextExt};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ResourceMetrics, ScopeMetrics, SumDataPoint};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use portcullis_host::proto::host::v1::{HookCall, Review};
use portcullis_host::testing::{FakeDispatcher, create};
use portcullis_host::{Error, HandlerError, Host, Request, Stage, Verdict};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn review(hooks: &[&str]) -> Review {
    let call = |(i, name): (usize, &&str)| HookCall {
        name: (*name).into(),
        stage: Stage::Validate.into(),
        remaining_ms: if *name == "wait" { 1_000 } else { 60_000 },
        span_id: vec![0, 0, 0, 0, 0, 0, 0, u8::try_from(i + 1).expect("few hooks")].into(),
        ..HookCall::default()
    };
    Review {
        hooks: hooks.iter().enumerate().map(call).collect(),
        traceparent: format!("00-{TRACE}-00f067aa0ba902b7-01"),
        tracestate: "vendor=1".into(),
        request: Some(prost::Message::encode_to_vec(&create("{}")).into()),
        ..Review::default()
    }
}

#[tokio::test]
async fn a_handler_runs_in_the_trace_of_its_call_and_is_counted() -> Result<(), Error> {
    let (spans, metrics) = (InMemorySpanExporter::default(), InMemoryMetricExporter::default());
    let tracing = SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build();
    let reader = PeriodicReader::builder(metrics.clone()).build();
    let metering = SdkMeterProvider::builder().with_reader(reader).build();
    let host = Host::builder("h")
        .tracer_provider(&tracing)
        .meter_provider(&metering)
        .validate("allow", async |request: Request| {
            let parent = request.traceparent().unwrap_or_default();
            tokio::task::yield_now().await;
            let span = Context::current().span().span_context().span_id();
            Ok(Verdict::allow()
                .audit("parent", parent)
                .audit("state", request.tracestate())
                .audit("span", span.to_string()))
        })
        .validate("fail", async |_: Request| Err(HandlerError::public("registry is down")))
        .validate("panic", async |_: Request| panic!("a bug"))
        .validate("wait", async |_: Request| std::future::pending().await)
        .build()?;
    let dispatcher = FakeDispatcher::start(&host).await?;
    let verdicts = dispatcher.post_review(review(&["allow", "fail", "wait", "panic", "none"])).await?.wait().await?;
    dispatcher.stop().await?;

    let response = match verdicts[0].outcome.clone() {
        Some(portcullis_host::proto::host::v1::verdict::Outcome::Response(response)) => response,
        other => panic!("{other:?}"),
    };
    assert_eq!(response.audit_annotations["parent"], format!("00-{TRACE}-0000000000000001-01"));
    let spans = spans.get_finished_spans().expect("spans");
    let named = |name: &str| spans.iter().find(|span| span.name == name).expect("a span");
    let allow = named("handle allow");
    assert_eq!(allow.span_context.trace_id().to_string(), TRACE);
    assert_eq!((allow.parent_span_id, allow.span_kind.clone()), (SpanId::from(1), SpanKind::Server));
    assert_eq!(allow.span_context.trace_state().get("vendor"), Some("1"));
    assert_eq!(response.audit_annotations["span"], allow.span_context.span_id().to_string());
    assert_eq!(response.audit_annotations["state"], "vendor=1");
    assert_eq!(named("handle fail").status, Status::error("registry is down"));
    let exceptions: Vec<_> = named("handle fail").events.iter().filter(|event| event.name == "exception").collect();
    assert_eq!(exceptions[0].attributes[0].value.as_str(), "registry is down");
    assert_eq!(named("handle wait").status, Status::error("cancelled"));
    assert!(
        named("handle wait").end_time.duration_since(allow.start_time).expect("later") >= Duration::from_millis(900)
    );

    metering.force_flush().expect("metrics");
    let want = [("allow", "allowed"), ("fail", "failed"), ("wait", "cancelled"), ("panic", "panicked")];
    let want = want.map(|(hook, outcome)| (format!("{hook} {outcome}"), 1));
    assert_eq!(calls(&metrics), BTreeMap::from(want));
    Ok(())
}

/// The counted calls, by hook and outcome.
fn calls(exporter: &InMemoryMetricExporter) -> BTreeMap<String, u64> {
    let exported = exporter.get_finished_metrics().expect("metrics");
    let scopes = exported.iter().flat_map(ResourceMetrics::scope_metrics);
    let metrics: Vec<_> = scopes.flat_map(ScopeMetrics::metrics).collect();
    assert!(metrics.iter().any(|metric| metric.name() == "portcullis.host.handler.duration"));
    let calls = metrics.iter().find(|metric| metric.name() == "portcullis.host.calls").expect("a counter");
    let AggregatedMetrics::U64(MetricData::Sum(sum)) = calls.data() else { panic!("{calls:?}") };
    let label = |point: &SumDataPoint<u64>, key: &str| {
        point.attributes().find(|kv| kv.key.as_str() == key).map(|kv| kv.value.to_string()).unwrap_or_default()
    };
    let entry =
        |point| (format!("{} {}", label(point, "portcullis.hook"), label(point, "portcullis.outcome")), point.value());
    sum.data_points().map(entry).collect()
}
