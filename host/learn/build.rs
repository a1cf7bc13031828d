//! Compiles the C++ of `cpp`, and lets every test and binary find libtorch without environment variables.
//!
//! `libtorch.so` itself stays linked: it loads the CUDA libraries if they exist, and `--as-needed`
//! would drop it.
#![allow(clippy::print_stdout)] // build scripts pass instructions to cargo on stdout

fn main() {
    println!("cargo::rerun-if-changed=cpp");
    if let Ok(lib) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{lib}");
        println!("cargo::rustc-link-arg=-Wl,--no-as-needed,-ltorch,--as-needed");
        cc::Build::new()
            .cpp(true)
            .std("c++17")
            .warnings(false) // of libtorch's headers
            .include(std::path::Path::new(&lib).with_file_name("include"))
            .flag("-fopenmp") // at::parallel_for; torch-sys links GCC's library of it
            .opt_level(3)
            .file("cpp/libtorch.cpp")
            .file("cpp/cpu.cpp")
            .compile("corver_libtorch");
    }
}
