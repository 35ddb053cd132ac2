//! A watch that outlives its streams.

use std::future;

use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use tonic::{Code, Status, Streaming};

use super::{Error, Stub};
use crate::error::whole_text;
use crate::manager::backoff;
use crate::proto::initializer::v1::{EventType, WatchRequest, WatchResponse};

pub(super) fn watch(
    stub: Result<Stub, Error>,
    request: WatchRequest,
) -> impl Stream<Item = Result<WatchResponse, Error>> + Send + Unpin {
    let bookmarks = request.bookmarks;
    let events = stream::once(future::ready(stub.map(|stub| events(stub, request)))).try_flatten();
    events.try_filter(move |event| future::ready(bookmarks || event.r#type() != EventType::Bookmark)).boxed()
}

fn events(stub: Stub, request: WatchRequest) -> impl Stream<Item = Result<WatchResponse, Error>> + Send {
    let watch = Watch { stub, position: Position::new(request), inbound: None, attempts: 0 };
    stream::try_unfold(watch, async |mut watch| Ok(Some((watch.next().await?, watch))))
}

struct Watch {
    stub: Stub,
    position: Position,
    inbound: Option<Streaming<WatchResponse>>,
    /// How many streams have ended since the last event.
    attempts: u32,
}

impl Watch {
    async fn next(&mut self) -> Result<WatchResponse, Error> {
        loop {
            match self.read().await {
                Ok(Some(event)) => {
                    self.attempts = 0;
                    self.position.read(&event);
                    return Ok(event);
                }
                Ok(None) => {} // Its time was over.
                Err(status) => {
                    if self.attempts == 1 {
                        tracing::warn!(error = whole_text(&status), "staged objects cannot be watched: asking again");
                    }
                    self.position.ended(status)?;
                }
            }
            self.inbound = None;
            tokio::time::sleep(backoff(self.attempts, fastrand::f64())).await;
            self.attempts += 1;
        }
    }

    /// Reads the stream, and begins it if there is none.
    async fn read(&mut self) -> Result<Option<WatchResponse>, Status> {
        let inbound = match &mut self.inbound {
            Some(inbound) => inbound,
            None => self.inbound.insert(self.stub.watch(self.position.request.clone()).await?.into_inner()),
        };
        inbound.message().await
    }
}

/// Where the next stream begins.
#[derive(Debug)]
struct Position {
    request: WatchRequest,
    /// Whether all objects that are sent first have come. They are not in the order of their versions: before their end no
    /// version can be gone on from.
    listed: bool,
}

impl Position {
    fn new(request: WatchRequest) -> Self {
        let listed = !request.resource_version.is_empty();
        Self { request: WatchRequest { bookmarks: true, ..request }, listed }
    }

    fn read(&mut self, event: &WatchResponse) {
        self.listed |= event.initial_events_end;
        if let Some(object) = event.object.as_ref().filter(|_| self.listed) {
            self.request.resource_version.clone_from(&object.resource_version);
        }
    }

    /// Takes the end of a stream, and returns the error if that is the end of the watch.
    fn ended(&mut self, status: Status) -> Result<(), Error> {
        if matches!(status.code(), Code::OutOfRange | Code::Aborted) {
            self.request.resource_version.clear();
            self.listed = false;
            return Ok(());
        }
        let error = Error::from(status);
        if error.is_temporary() { Ok(()) } else { Err(error) }
    }
}
