//! Checks that the committed messages and stubs match the contract in `proto/`.

use std::{error::Error, fs, path::Path};

#[test]
fn the_generated_messages_are_those_of_the_contract() -> Result<(), Box<dyn Error>> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.join("../../proto");
    let folder = tempfile::tempdir()?;
    let files = protox::compile([root.join("keyservice/v1/key_service.proto")], [&root])?;
    // Few models have them, and every call about a hold carries a price.
    let builder = tonic_prost_build::configure().boxed(".keyservice.v1.Price.further");
    builder.out_dir(folder.path()).compile_fds(files)?;
    let generated = fs::read_to_string(folder.path().join("keyservice.v1.rs"))?;
    let committed = package.join("src/v1.rs");
    if generated != fs::read_to_string(&committed)? {
        fs::write(&committed, generated)?;
        panic!("{} did not match the contract and was rewritten; commit it", committed.display());
    }
    Ok(())
}
