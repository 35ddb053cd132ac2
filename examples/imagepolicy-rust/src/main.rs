//! A host with two hooks: images are named by digest, and every object has a label with its team. It is a beginning for
//! hosts of your own.

mod policy;

use std::collections::HashMap;
use std::process::ExitCode;

use portcullis_host::{Builder, Tls, signal};

const USAGE: &str = "usage: imagepolicy --dispatchers HOST:PORT[,HOST:PORT...] [--cert FILE] [--key FILE] [--ca FILE]

  --dispatchers  where the mesh listens for hosts; each address of a name is a dispatcher
  --cert         PEM file of our certificate, whose identity the HookRoute names (tls.crt)
  --key          PEM file of its key (tls.key)
  --ca           PEM file of the authorities of the dispatchers (ca.crt)";

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let Some(host) = configure(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match host.run_until(signal::terminated()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The host that the command line asks for; `None` if that cannot be understood.
fn configure(mut args: impl Iterator<Item = String>) -> Option<Builder> {
    let mut flags = HashMap::from([("cert", "tls.crt".to_owned()), ("key", "tls.key".into()), ("ca", "ca.crt".into())]);
    while let Some(flag) = args.next() {
        let known = ["dispatchers", "cert", "key", "ca"].into_iter().find(|name| flag == format!("--{name}"))?;
        flags.insert(known, args.next()?);
    }
    let tls = Tls::files(&flags["cert"], &flags["key"], &flags["ca"]);
    let host = policy::host().tls(tls);
    Some(flags.get("dispatchers")?.split(',').fold(host, Builder::dispatcher))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(line: &str) -> bool {
        configure(line.split_whitespace().map(str::to_owned)).is_some_and(|host| host.build().is_ok())
    }

    #[test]
    fn the_command_line_names_the_dispatchers() {
        assert!(configured("--dispatchers a.example:8444,b.example:8444 --cert c --key k --ca a"));
        for wrong in ["", "--cert c", "--dispatchers", "--dispatchers a.example", "--nonsense x", "x"] {
            assert!(!configured(wrong), "{wrong}");
        }
    }
}
