//! When to leave.

/// Waits for SIGTERM or SIGINT: what Kubernetes and a terminal send to a program that is to end. Where there are no such
/// signals it waits for Ctrl-C.
///
/// From its first call on, these signals do not end the program by themselves. Call it on a runtime.
pub async fn terminated() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let listeners = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
        if let (Ok(mut terminate), Ok(mut interrupt)) = listeners {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            return;
        }
    }
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
