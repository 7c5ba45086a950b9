//! Compiles the shim with the compiler wrapper of MPI, and links what the wrapper links.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=src/shim.c");
    println!("cargo:rerun-if-env-changed=MPICC");
    let wrapper = std::env::var("MPICC").unwrap_or_else(|_| "mpicc".to_string());
    let shown = |flag: &str| {
        let output = Command::new(&wrapper).arg(flag).output().unwrap_or_else(|why| {
            panic!(
                "`{wrapper}` cannot be run ({why}): install Open MPI (libopenmpi-dev), or name its compiler in MPICC"
            )
        });
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    };
    cc::Build::new().compiler(&wrapper).file("src/shim.c").warnings(true).compile("shim");
    // Open MPI answers the first question, MPICH the second.
    let line = [shown("--showme:link"), shown("-link_info")].into_iter().find(|line| !line.is_empty());
    for word in line.unwrap_or_default().split_whitespace() {
        if let Some(folder) = word.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
        } else if let Some(library) = word.strip_prefix("-l") {
            println!("cargo:rustc-link-lib={library}");
        }
    }
}
