//! An initializer over the staged objects that wait for it.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryStreamExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Error, StagedClient, done, object_of, refused, unchanged, waits};
use crate::error::HandlerError;
use crate::limits;
use crate::manager::backoff;
use crate::proto::initializer::v1::{ListRequest, StagedObject, UpdateRequest, WatchRequest, WatchResponse};

impl StagedClient {
    /// Runs an initializer, by the name that it has in its `InitializerConfiguration`, over the staged objects whose first pending
    /// initializer it is, as a host would: it gets the object, as a [`serde_json::Value`], in a type of `k8s-openapi` or in one of
    /// yours, and returns it as it should be created; what the type does not know stays.
    /// [`Refused`](crate::Refused) refuses the object. It also gets the staged object, with its creator.
    ///
    /// It runs for many objects at once, up to 64, and for one object once at a time. It runs anew when the object has changed
    /// meanwhile, and for another replica when this one is lost: it should do nothing but change the object. When it fails,
    /// panics, or is not done before the hold ends, which drops its future, that is logged, and `failurePolicy` decides at the
    /// end of the hold. Work that keeps a thread busy belongs into `tokio::task::spawn_blocking`.
    ///
    /// This watches for ever, through lost connections and past dispatchers that stop. Dropping the future ends it: objects that
    /// were not done are left as they are, for another replica.
    ///
    /// # Errors
    ///
    /// Ends by an error that asking again does not mend, as [`watch`](Self::watch) does: for example no `HookRoute` grants an
    /// initializer to the client's identity.
    pub async fn initialize<T, F, Fut>(&self, name: impl Into<String>, initializer: F) -> Result<(), Error>
    where
        T: DeserializeOwned + Serialize + Send + 'static,
        F: Fn(T, StagedObject) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, HandlerError>> + Send + 'static,
    {
        let name = name.into();
        let selection = ListRequest { first_pending: name.clone(), ..ListRequest::default() };
        let events = self.watch(WatchRequest { selection: Some(selection), ..WatchRequest::default() });
        let answer: Answer = Box::new(move |staged| {
            let initializing = object_of(&staged).map(|object| initializer(object, staged.clone()));
            Box::pin(async move { answer(&staged, initializing?.await) })
        });
        let run = Run { client: self, name, answer, turns: Mutex::default() };
        events.try_for_each_concurrent(limits::INITIALIZATIONS, |event| run.event(event).map(Ok)).await
    }
}

/// The update that an initializer asks for.
type Answer = Box<dyn Fn(StagedObject) -> BoxFuture<'static, Result<UpdateRequest, HandlerError>> + Send + Sync>;

fn answer<T>(staged: &StagedObject, made: Result<T, HandlerError>) -> Result<UpdateRequest, HandlerError>
where
    T: DeserializeOwned + Serialize,
{
    match made {
        Ok(object) => Ok(done(staged, &object)?),
        Err(error) => match error.refusal() {
            Some(verdict) if verdict.is_allowed() => Ok(unchanged(staged)),
            Some(denial) => Ok(refused(staged, denial)?),
            None => Err(error),
        },
    }
}

struct Run<'a> {
    client: &'a StagedClient,
    name: String,
    answer: Answer,
    /// The objects that the initializer works on, by uid, with what has become of them meanwhile.
    turns: Mutex<HashMap<String, Option<StagedObject>>>,
}

impl Run<'_> {
    async fn event(&self, event: WatchResponse) {
        let waits = waits(&event);
        let mut next = match event.object {
            Some(staged) => self.begin(staged, waits),
            None => None,
        };
        while let Some(staged) = next {
            self.act(&staged).await;
            next = self.end(&staged);
        }
    }

    /// Begins the turn of an object, unless it does not wait, or it has one: that one goes on with what is noted here.
    fn begin(&self, staged: StagedObject, waits: bool) -> Option<StagedObject> {
        let mut turns = self.turns();
        match turns.get_mut(&staged.uid) {
            Some(next) => {
                *next = waits.then_some(staged);
                None
            }
            None if waits => {
                turns.insert(staged.uid.clone(), None);
                Some(staged)
            }
            None => None,
        }
    }

    /// Ends the turn of an object, unless it has changed and waits still.
    fn end(&self, staged: &StagedObject) -> Option<StagedObject> {
        let mut turns = self.turns();
        let next = turns.get_mut(&staged.uid).and_then(Option::take);
        let next = next.filter(|next| next.resource_version != staged.resource_version); // A watch may send one twice.
        if next.is_none() {
            turns.remove(&staged.uid);
        }
        next
    }

    fn turns(&self) -> MutexGuard<'_, HashMap<String, Option<StagedObject>>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn act(&self, staged: &StagedObject) {
        let left = Duration::from_millis(staged.remaining_ms.into());
        let acted = tokio::time::timeout(left, AssertUnwindSafe(self.initialize(staged)).catch_unwind()).await;
        let error = match acted {
            Ok(Ok(Ok(()))) => return,
            Ok(Ok(Err(error))) => error.whole_text(),
            Ok(Err(_)) => "panicked".into(),
            Err(_) => "the hold has ended before".into(),
        };
        let key = staged.key.clone().unwrap_or_default();
        tracing::error!(
            initializer = self.name,
            cluster = key.cluster,
            namespace = key.namespace,
            name = key.name,
            uid = staged.uid,
            error,
            "initializer failed"
        );
    }

    /// Asks the initializer, and then a dispatcher until one has answered.
    async fn initialize(&self, staged: &StagedObject) -> Result<(), HandlerError> {
        let request = (self.answer)(staged.clone()).await?;
        let mut attempts = 0;
        loop {
            match self.client.update(request.clone()).await {
                Err(error) if error.is_temporary() => {
                    tokio::time::sleep(backoff(attempts, fastrand::f64())).await;
                    attempts += 1;
                }
                // Another replica was faster, or the object has changed: if it waits still, the watch shows it again.
                Ok(_) | Err(Error::Conflict(_) | Error::NotFound(_)) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
