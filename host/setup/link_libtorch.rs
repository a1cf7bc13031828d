//! Lets every test and binary find libtorch without environment variables, and keeps `libtorch.so`
//! itself linked: it is what pulls in the CUDA libraries where they exist, and `--as-needed` would
//! drop it.
#![allow(clippy::print_stdout)] // how a build script answers

fn main() {
    if let Ok(lib) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{lib}");
        println!("cargo::rustc-link-arg=-Wl,--no-as-needed,-ltorch,--as-needed");
    }
}
