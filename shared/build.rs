//! Compiles the contract between the services, without an installed `protoc`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let (proto, root) = ("../proto/keyservice/v1/key_service.proto", "../proto");
    println!("cargo::rerun-if-changed={root}");
    let files = protox::compile([proto], [root])?;
    tonic_prost_build::configure().compile_fds(files)?;
    Ok(())
}
