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
        let mut build = cc::Build::new();
        build
            .cpp(true)
            .std("c++17")
            .warnings(false) // of libtorch's headers
            .flag("-Wno-psabi") // vectors as parameters, of functions that are all inlined
            .opt_level(3)
            .include(std::path::Path::new(&lib).with_file_name("include"))
            .file("cpp/libtorch.cpp")
            .file("cpp/cpu.cpp")
            .file("cpp/product.cpp");
        // at::parallel_for. torch-sys links GCC's library of it; with Clang, which has another one, the
        // functions of cpu.cpp use one thread.
        let openmp = match build.get_compiler().is_like_clang() {
            true => "-fopenmp-simd",
            false => "-fopenmp",
        };
        build.flag(openmp).compile("corver_libtorch");
    }
}
