//! A host with two hooks: images are named by digest, and a Pod without a team gets its namespace's. A beginning for hosts
//! of your own.

mod policy;

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;

use portcullis_host::{Builder, Host, Tls, signal};
use tokio::net::TcpListener;

const USAGE: &str = "usage: imagepolicy --dispatchers HOST:PORT[,HOST:PORT...] [FLAG VALUE...]

  --dispatchers  host:port of the dispatchers; each address of a name is one
  --cert         PEM file of our certificate, whose identity the HookRoute names (tls.crt)
  --key          PEM file of its key (tls.key)
  --ca           PEM file of the authorities of the dispatchers (ca.crt)
  --ready-port   port that accepts connections once every hook is in rotation; 0 for none";

/// Serves the hooks until SIGTERM or SIGINT.
#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let Some((host, ready_port)) = configure(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match serve(host, ready_port).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The host and the port for probes that the command line asks for; `None` if that cannot be understood.
fn configure(mut args: impl Iterator<Item = String>) -> Option<(Builder, u16)> {
    let defaults = [("cert", "tls.crt"), ("key", "tls.key"), ("ca", "ca.crt"), ("ready-port", "0")];
    let mut flags: HashMap<&str, String> = defaults.map(|(name, value)| (name, value.to_owned())).into();
    while let Some(flag) = args.next() {
        let known = ["dispatchers", "cert", "key", "ca", "ready-port"];
        let known = known.into_iter().find(|name| flag == format!("--{name}"))?;
        flags.insert(known, args.next()?);
    }
    let tls = Tls::files(&flags["cert"], &flags["key"], &flags["ca"]);
    let host = policy::new_host().tls(tls);
    let host = flags.get("dispatchers")?.split(',').fold(host, Builder::dispatcher);
    Some((host, flags["ready-port"].parse().ok()?))
}

/// Serves the hooks, and the port for probes if there is one.
async fn serve(host: Builder, ready_port: u16) -> Result<(), Box<dyn std::error::Error>> {
    let host = host.build()?;
    tokio::select! {
        served = host.run_until(signal::terminated()) => Ok(served?),
        failed = accept_probes(&host, ready_port), if ready_port != 0 => Err(failed.into()),
    }
}

/// Accepts connections once every hook is in rotation. A readiness probe with tcpSocket opens one.
async fn accept_probes(host: &Host, port: u16) -> std::io::Error {
    host.ready().await;
    let any: [SocketAddr; 2] = [(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()];
    let listener = match TcpListener::bind(&any[..]).await {
        Ok(listener) => listener,
        Err(error) => return error,
    };
    loop {
        if let Err(error) = listener.accept().await {
            return error;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(line: &str) -> bool {
        configure(line.split_whitespace().map(str::to_owned)).is_some_and(|(host, _)| host.build().is_ok())
    }

    #[test]
    fn the_command_line_names_the_dispatchers() {
        assert!(configured("--dispatchers a.example:8444,b.example:8444 --cert c --key k --ca a --ready-port 8080"));
        for wrong in [
            "",
            "--cert c",
            "--dispatchers",
            "--dispatchers a.example",
            "--nonsense x",
            "x",
            "--dispatchers a:1 --ready-port x",
        ] {
            assert!(!configured(wrong), "{wrong}");
        }
    }
}
