//! Writes `src/gen` from the contract, in pure Rust: nobody needs `protoc`. Writes the public API into api.txt.
//!
//! ```text
//! cargo run -p xtask -- generate    writes both
//! cargo run -p xtask -- check       says whether they are up to date
//! ```

mod api;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

/// The files that are generated, one for each package.
const FILES: [&str; 2] = ["portcullis.admission.v1.rs", "portcullis.host.v1.rs"];

/// The public API.
const API: &str = "api.txt";

/// The service that is generated, with all that it names.
const SERVICES: [&str; 1] = ["portcullis/host/v1/host.proto"];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let committed = sdk.join("src/gen");
    match env::args().nth(1).as_deref() {
        Some("generate") => {
            generate(&sdk, &committed)?;
            fs::write(sdk.join(API), api::read(&sdk.join("src"))?)?;
            Ok(ExitCode::SUCCESS)
        }
        Some("check") => check(&sdk, &committed),
        _ => Err("usage: xtask generate | check".into()),
    }
}

/// Compares the committed code with code that is generated now.
fn check(sdk: &Path, committed: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let fresh = env::temp_dir().join(format!("portcullis-gen-{}", std::process::id()));
    generate(sdk, &fresh)?;
    let stale = FILES.iter().find(|file| fs::read(fresh.join(file)).ok() != fs::read(committed.join(file)).ok());
    let stale = stale.map(|file| format!("src/gen/{file}"));
    fs::remove_dir_all(&fresh)?;
    let same = fs::read_to_string(sdk.join(API)).ok() == Some(api::read(&sdk.join("src"))?);
    match stale.or_else(|| (!same).then(|| API.into())) {
        None => Ok(ExitCode::SUCCESS),
        Some(file) => {
            eprintln!("{file} is out of date: run `cargo run -p xtask -- generate` in sdk/rust");
            Ok(ExitCode::FAILURE)
        }
    }
}

fn generate(sdk: &Path, into: &PathBuf) -> Result<(), Box<dyn Error>> {
    let proto = sdk.join("../../proto");
    let descriptors = protox::compile(SERVICES, [proto])?;
    fs::create_dir_all(into)?;
    tonic_prost_build::configure()
        .out_dir(into)
        // Objects are parts of the frame that they came in, not copies.
        .bytes(".")
        // The request of a review stays encoded until a handler is to run.
        .extern_path(".portcullis.host.v1.Review", "crate::wire::Review")
        // `connect` is our one method, and would be the constructor's name as well.
        .build_transport(false)
        // The server is what the tests dial.
        .server_mod_attribute(".", "#[cfg(test)]")
        .emit_rerun_if_changed(false)
        .compile_fds(descriptors)?;
    Ok(())
}
