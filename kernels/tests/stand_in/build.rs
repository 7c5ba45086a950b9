//! The stand-in for CUDA's libraries, built once for all tests.

use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// The names of the libraries, all of which are one.
const LIBRARIES: [&str; 4] = ["libcuda.so", "libnvrtc.so", "libcublasLt.so", "libnccl.so.2"];

/// How the name of a folder with libraries begins; the digest of their sources follows.
const PREFIX: &str = "stand-in-";

/// Held by the thread that builds.
static BUILDING: Mutex<()> = Mutex::new(());

/// A new folder in the target folder, with links to the libraries. The stand-in's sources are given by their folder.
pub(crate) fn linked(sources: &Path, name: &str) -> PathBuf {
    let (built, folder) = (built(sources), Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    LIBRARIES.iter().for_each(|library| symlink(built.join(library), folder.join(library)).unwrap());
    folder
}

/// A command that finds the libraries of such a folder in place of CUDA's.
pub(crate) fn on_stand_in<'a>(command: &'a mut Command, folder: &Path) -> &'a mut Command {
    let library = folder.join(LIBRARIES[0]).canonicalize().unwrap();
    let kernels = library.parent().expect("a library lies in a folder");
    command.env("LD_LIBRARY_PATH", folder).env("STAND_IN_FOLDER", folder).env("STAND_IN_KERNELS", kernels)
}

/// The folder with the libraries. Kernels that they compile lie there too: the tests of all crates share those of equal texts. The folder
/// stays until the sources change.
fn built(sources: &Path) -> PathBuf {
    let _building = BUILDING.lock().unwrap();
    let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let name = format!("{PREFIX}{:016x}", digest(sources));
    let folder = all.join(&name);
    if !folder.exists() {
        let is_old = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(PREFIX);
        let old = fs::read_dir(all).unwrap().flatten().filter(is_old);
        old.for_each(|entry| drop(fs::remove_dir_all(entry.path())));
        let own = all.join(format!("{}-{name}", std::process::id()));
        build(sources, &own);
        // Another process may have been faster.
        if fs::rename(&own, &folder).is_err() {
            fs::remove_dir_all(own).unwrap();
        }
    }
    folder
}

/// A number that differs for other sources.
fn digest(sources: &Path) -> u64 {
    let mut files: Vec<PathBuf> = fs::read_dir(sources).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let mut hasher = DefaultHasher::new();
    files.iter().for_each(|file| hasher.write(&fs::read(file).unwrap()));
    hasher.finish()
}

fn build(sources: &Path, folder: &Path) {
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
