//! The committed messages are those of `proto/store`.

use std::{error::Error, fs, path::Path};

#[test]
fn the_generated_messages_are_those_of_the_proto_files() -> Result<(), Box<dyn Error>> {
    let store = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = store.join("../../proto");
    let folder = tempfile::tempdir()?;
    let files = protox::compile([root.join("store/v1/ledger.proto")], [&root])?;
    tonic_prost_build::configure().out_dir(folder.path()).compile_fds(files)?;
    let generated = fs::read_to_string(folder.path().join("store.v1.rs"))?;
    let committed = store.join("src/messages.rs");
    if generated != fs::read_to_string(&committed).unwrap_or_default() {
        fs::write(&committed, generated)?;
        panic!("{} was not that of the proto files and is written anew: commit it", committed.display());
    }
    Ok(())
}
