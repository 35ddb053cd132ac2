//! Spans and metrics by the API of OpenTelemetry. Without the feature `otel` there are none.
//!
//! It is that API, and not spans of `tracing`, since a remote parent and the export of metrics need OpenTelemetry anyway; its
//! API alone is small, and does nothing until the program sets a provider. Spans of `tracing` inside a handler become children of
//! the handler's span with the layer of `tracing-opentelemetry`, which takes the current context of OpenTelemetry as their
//! parent.

#[cfg(feature = "otel")]
pub(crate) use self::otel::{Providers, Telemetry};
#[cfg(not(feature = "otel"))]
pub(crate) use self::without::{Providers, Telemetry};

#[cfg(feature = "otel")]
mod otel {
    use std::future::Future;
    use std::sync::Arc;
    use std::time::{Duration, Instant, SystemTime};

    use opentelemetry::context::{FutureExt, WithContext};
    use opentelemetry::global::{self, BoxedTracer, ObjectSafeTracerProvider};
    use opentelemetry::metrics::{Counter, Histogram, Meter, MeterProvider};
    use opentelemetry::trace::{
        SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState, Tracer,
    };
    use opentelemetry::{Context, InstrumentationScope, KeyValue};

    use crate::core::Start;
    use crate::error::HandlerError;
    use crate::hook::Hook;
    use crate::proto::host::v1::HookCall;
    use crate::proto::host::v1::verdict::Outcome;
    use crate::wire::Review;

    /// The scope of the SDK's spans and metrics.
    const SCOPE: &str = "portcullis-host";

    /// What the author of a host sets in place of the global providers.
    #[derive(Default)]
    pub(crate) struct Providers {
        tracer: Option<Arc<BoxedTracer>>,
        meter: Option<Meter>,
    }

    impl Providers {
        pub(crate) fn trace(&mut self, provider: &impl ObjectSafeTracerProvider) {
            let scope = InstrumentationScope::builder(SCOPE).build();
            self.tracer = Some(Arc::new(BoxedTracer::new(provider.boxed_tracer(scope))));
        }

        pub(crate) fn measure(&mut self, provider: &impl MeterProvider) {
            self.meter = Some(provider.meter(SCOPE));
        }
    }

    impl std::fmt::Debug for Providers {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Providers")
        }
    }

    /// The instruments of a host.
    pub(crate) struct Telemetry {
        tracer: Arc<BoxedTracer>,
        calls: Counter<u64>,
        time: Histogram<f64>,
    }

    impl std::fmt::Debug for Telemetry {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Telemetry")
        }
    }

    impl Telemetry {
        /// Instruments of the providers, or else of those that are global now.
        pub(crate) fn new(providers: &Providers) -> Arc<Self> {
            let meter = providers.meter.clone().unwrap_or_else(|| global::meter(SCOPE));
            let calls = meter.u64_counter("portcullis.host.calls").with_unit("{call}");
            let time = meter.f64_histogram("portcullis.host.handler.duration").with_unit("s");
            Arc::new(Self {
                tracer: providers.tracer.clone().unwrap_or_else(|| Arc::new(global::tracer(SCOPE))),
                calls: calls.with_description("Calls of hooks, by how they ended").build(),
                time: time.with_description("Time that handlers took").build(),
            })
        }

        /// Counts a call, and measures its handler if that was called.
        pub(crate) fn called(&self, hook: &Hook, outcome: &'static str, took: Option<Duration>) {
            let name = || KeyValue::new("portcullis.hook", hook.name.clone());
            let stage = || KeyValue::new("portcullis.stage", hook.stage_name());
            self.calls.add(1, &[name(), stage(), KeyValue::new("portcullis.outcome", outcome)]);
            if let Some(took) = took {
                self.time.record(took.as_secs_f64(), &[name(), stage()]);
            }
        }

        /// Starts the handler's span as a child of the call's span in the dispatcher. It begins when the review was received;
        /// the event "queued" is when the handler is called.
        pub(crate) fn span(&self, start: &Start, called: Instant) -> CallSpan {
            let parent = remote(&start.review.review, start.call())
                .map_or_else(Context::new, |parent| Context::new().with_remote_span_context(parent));
            let now = SystemTime::now();
            let queued = called.duration_since(start.received);
            let span = self
                .tracer
                .span_builder(format!("handle {}", start.hook.name))
                .with_kind(SpanKind::Server)
                .with_start_time(now.checked_sub(queued).unwrap_or(now))
                .start_with_context(&*self.tracer, &parent);
            let context = parent.with_span(span);
            if context.span().is_recording() {
                context.span().add_event_with_timestamp("queued", now, Vec::new());
                context.span().set_attributes(attributes(start, queued));
            }
            CallSpan { context, ended: false }
        }
    }

    fn attributes(start: &Start, queued: Duration) -> [KeyValue; 5] {
        let cluster = start.review.request().map(|request| request.cluster.clone());
        [
            KeyValue::new("portcullis.hook", start.hook.name.clone()),
            KeyValue::new("portcullis.stage", start.hook.stage_name()),
            KeyValue::new("k8s.cluster.name", cluster.unwrap_or_default()),
            KeyValue::new("portcullis.queue.duration", queued.as_secs_f64()),
            KeyValue::new("portcullis.call", i64::try_from(start.pair.call).unwrap_or(i64::MAX)),
        ]
    }

    /// The call's span in the dispatcher. The traceparent of a frame is that of the whole review, which may hold calls of
    /// several hooks.
    fn remote(review: &Review, call: &HookCall) -> Option<SpanContext> {
        let mut parts = review.traceparent.split('-').skip(1);
        let trace = TraceId::from_hex(parts.next()?).ok()?;
        let span = SpanId::from_hex(parts.next()?).ok()?;
        let flags = TraceFlags::new(u8::from_str_radix(parts.next()?, 16).ok()?);
        let span = <[u8; 8]>::try_from(&*call.span_id).map_or(span, SpanId::from_bytes);
        let state: TraceState = review.tracestate.parse().unwrap_or_default();
        Some(SpanContext::new(trace, span, flags & TraceFlags::SAMPLED, true, state)).filter(SpanContext::is_valid)
    }

    /// The span of one call. One that is dropped before its end was cancelled, or its handler panicked.
    pub(crate) struct CallSpan {
        context: Context,
        ended: bool,
    }

    impl CallSpan {
        /// The future of a handler, which is called and polled under the span.
        pub(crate) fn around<F: Future>(&self, handler: impl FnOnce() -> F) -> WithContext<F> {
            let guard = self.context.clone().attach();
            let future = handler();
            drop(guard);
            future.with_context(self.context.clone())
        }
    }

    impl CallSpan {
        pub(crate) fn end(mut self, outcome: &Outcome, failure: Option<&HandlerError>) {
            self.ended = true;
            let span = self.context.span();
            if let Some(failure) = failure {
                span.add_event("exception", vec![KeyValue::new("exception.message", failure.whole_text())]);
            }
            match outcome {
                Outcome::Response(r) => span.set_attribute(KeyValue::new("portcullis.allowed", r.allowed)),
                Outcome::Error(error) => span.set_status(Status::error(error.message.clone())),
                _ => {}
            }
            span.end();
        }
    }

    impl Drop for CallSpan {
        fn drop(&mut self) {
            if !self.ended {
                let why = if std::thread::panicking() { "panic" } else { "cancelled" };
                self.context.span().set_status(Status::error(why));
                self.context.span().end();
            }
        }
    }
}

#[cfg(not(feature = "otel"))]
mod without {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use crate::core::Start;
    use crate::error::HandlerError;
    use crate::hook::Hook;
    use crate::proto::host::v1::verdict::Outcome;

    #[derive(Debug, Default)]
    pub(crate) struct Providers {}

    #[derive(Debug)]
    pub(crate) struct Telemetry;

    impl Telemetry {
        pub(crate) fn new(_: &Providers) -> Arc<Self> {
            Arc::new(Self)
        }

        #[expect(clippy::unused_self, reason = "the same as with the feature")]
        pub(crate) fn called(&self, _: &Hook, _: &'static str, _: Option<Duration>) {}

        #[expect(clippy::unused_self, reason = "the same as with the feature")]
        pub(crate) fn span(&self, _: &Start, _: Instant) -> CallSpan {
            CallSpan
        }
    }

    pub(crate) struct CallSpan;

    impl CallSpan {
        #[expect(clippy::unused_self, reason = "the same as with the feature")]
        pub(crate) fn around<F: Future>(&self, handler: impl FnOnce() -> F) -> F {
            handler()
        }

        #[expect(clippy::unused_self, reason = "the same as with the feature")]
        pub(crate) fn end(self, _: &Outcome, _: Option<&HandlerError>) {}
    }
}
