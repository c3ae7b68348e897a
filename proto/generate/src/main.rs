//! Writes the messages of the contract between the services: `generate`, or `generate --check`, which only reports what is not as it should be.

mod released;

use std::{error::Error, fs, path::Path, process::ExitCode};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let only_checks = std::env::args().nth(1).as_deref() == Some("--check");
    let (name, text) = ("shared/rpc/src/v1.rs", contract(&root)?);
    let mut differs = false;
    if fs::read_to_string(root.join(name)).unwrap_or_default() != text {
        if only_checks {
            eprintln!("{name} does not match the proto files: run `make generate`");
            differs = true;
        } else {
            fs::write(root.join(name), text)?;
            println!("wrote {name}");
        }
    }
    differs |= !released::is_kept(&root.join("proto"), only_checks)?;
    Ok(if differs { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Messages and stubs of the contract between the services.
fn contract(root: &Path) -> Result<String> {
    let proto = root.join("proto");
    let files = protox::compile([proto.join("keyservice/v1/key_service.proto")], [&proto])?;
    let folder = tempfile::tempdir()?;
    // Few models have them, and every call about a hold carries a price.
    let builder = tonic_prost_build::configure().boxed(".keyservice.v1.Price.further");
    builder.out_dir(folder.path()).compile_fds(files)?;
    Ok(fs::read_to_string(folder.path().join("keyservice.v1.rs"))?)
}
