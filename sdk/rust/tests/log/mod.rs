//! A log that tests read. There is one in each process, since the subscriber is global.

use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The lines of a process, which is as long as its tests.
#[derive(Default)]
pub(crate) struct Log {
    lines: Mutex<Vec<String>>,
    /// Has the log panic at each line.
    pub(crate) broken: AtomicBool,
}

impl Log {
    /// The log of this process.
    pub(crate) fn get() -> &'static Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        let mut first = false;
        let log = LOG.get_or_init(|| {
            first = true;
            Log::default()
        });
        if first {
            tracing::subscriber::set_global_default(log).expect("the only one");
        }
        log
    }

    /// The lines that hold a text.
    pub(crate) fn with(&self, text: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter(|line| line.contains(text)).cloned().collect()
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl Subscriber for &'static Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("{} ", event.metadata().level()));
        event.record(&mut line);
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line.0);
        assert!(!self.broken.load(Ordering::Relaxed), "the disk is full");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
