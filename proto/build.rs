//! Compiles the `.proto` files in pure Rust: no protoc needed on the machine.
use std::{env, error::Error, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=muster");
    let mut files: Vec<_> =
        fs::read_dir("muster/v1")?.map(|entry| Ok(entry?.path())).collect::<Result<_, Box<dyn Error>>>()?;
    files.sort();
    let descriptors = protox::compile(&files, ["."])?;
    prost_build::Config::new()
        .btree_map(["."])
        .bytes(["."])
        .out_dir(env::var("OUT_DIR")?)
        .compile_fds(descriptors)?;
    Ok(())
}
