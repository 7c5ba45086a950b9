//! Builds the stand-in for CUDA's libraries.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// The names of the libraries, all of which are one.
pub(crate) const LIBRARIES: [&str; 4] = ["libcuda.so", "libnvrtc.so", "libcublasLt.so", "libnccl.so.2"];

/// Builds the libraries from the sources in this folder, which the caller names, into a new folder. Setting `LD_LIBRARY_PATH` to
/// the new folder replaces CUDA; kernels are built in the folder that `STAND_IN_KERNELS` names, or else `STAND_IN_FOLDER`.
pub(crate) fn build(sources: &Path, folder: &Path) {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).unwrap();
    let is_part = |path: &Path| path.extension().is_some_and(|end| end == "c") && !path.ends_with("host.c");
    let files = fs::read_dir(sources).unwrap().map(|file| file.unwrap().path()).filter(|path| is_part(path));
    let shim = format!("-DSHIM=\"{}\"", sources.join("kernel.h").display());
    let mut library = Command::new("cc");
    library.args(["-std=gnu11", "-O2", "-shared", "-fPIC", "-Wl,-Bsymbolic", &shim]).args(files);
    let (built, links) = LIBRARIES.split_first().unwrap();
    succeed(library.arg("-o").arg(folder.join(built)).args(["-ldl", "-lm"]));
    links.iter().for_each(|link| symlink(built, folder.join(link)).unwrap());
}

/// Runs the C compiler.
pub(crate) fn succeed(cc: &mut Command) {
    let built = cc.output().expect("cc, the C compiler that Rust links with, runs");
    assert!(built.status.success(), "cc:\n{}", String::from_utf8_lossy(&built.stderr));
}
