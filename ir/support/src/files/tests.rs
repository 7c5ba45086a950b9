//! Tests of files.

use super::*;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;

fn text(path: &Path, text: &str) -> io::Result<()> {
    replace(path, |out| out.write_all(text.as_bytes()))
}

#[test]
fn new_folders_stay_if_they_get_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a/b/c");
    drop(make_folder_of(&file).unwrap());
    assert!(!folder.path().join("a").exists() && folder.path().exists());
    let made = make_folder_of(&file).unwrap();
    text(&file, "text").unwrap();
    drop(made);
    assert_eq!(fs::read(&file).unwrap(), b"text");
    assert!(make_folder_of(&file.join("d/e")).is_err());
    drop(make_folder_of(&folder.path().join("a/b/d")).unwrap());
    assert!(file.exists());
}

#[test]
fn only_regular_files_are_opened_and_nothing_waits() {
    let folder = tempfile::tempdir().unwrap();
    let (file, pipe, socket, link) = (
        folder.path().join("file"),
        folder.path().join("pipe"),
        folder.path().join("socket"),
        folder.path().join("link"),
    );
    fs::write(&file, "12345").unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let _socket = UnixListener::bind(&socket).unwrap();
    symlink(&file, &link).unwrap();
    assert_eq!(read(&link, 5).unwrap(), b"12345");
    assert_eq!(read(&file, 4).unwrap_err().kind(), ErrorKind::FileTooLarge);
    for (path, what) in [(&pipe, "a pipe"), (&socket, "a socket"), (&PathBuf::from("/dev/zero"), "a device")] {
        assert!(check_writable(path).is_ok(), "{}", path.display());
        for refused in [open(path), edit(path)] {
            assert!(refused.unwrap_err().to_string().contains(what), "{}", path.display());
        }
        assert!(text(path, "").is_err() && path.exists(), "{}", path.display());
    }
    assert!(write(&socket, |_| Ok(())).is_err() && socket.exists(), "a socket cannot be opened");
    write(Path::new("/dev/null"), |out| out.write_all(b"text")).unwrap();
    for refused in [open(folder.path()).map(drop), check_writable(folder.path())] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::IsADirectory);
    }
}

#[test]
fn names_of_a_folder_are_no_links() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("file"), "12345").unwrap();
    symlink("file", at("link")).unwrap();
    symlink("none", at("dangling")).unwrap();
    assert!(open_in(folder.path(), "file").is_ok() && edit(&at("file")).is_ok() && edit(&at("new")).is_ok());
    let write = |name: &str| replace_in(folder.path(), name, |out| out.write_all(b"other"));
    for name in ["link", "dangling"] {
        for refused in [open_in(folder.path(), name).map(drop), edit(&at(name)).map(drop), write(name)] {
            let why = refused.unwrap_err();
            assert!(is_linked(&why) && why.to_string().contains("a symbolic link"), "{name}: {why}");
        }
    }
    let options = || fs::OpenOptions::new().write(true).create(true).truncate(false).clone();
    for name in ["link", "dangling"] {
        assert!(is_linked(&open_as(&at(name), &mut options(), false).unwrap_err()), "it became a link since");
    }
    assert_eq!((fs::read(at("file")).unwrap(), at("none").exists()), (b"12345".to_vec(), false));
    write("file").unwrap();
    assert_eq!(fs::read(at("file")).unwrap(), b"other");
}

#[test]
fn a_file_is_replaced_whole_and_keeps_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("elsewhere")).unwrap();
    symlink("elsewhere/target", at("link")).unwrap();
    fs::write(at("link.new"), "of the user").unwrap();
    text(&at("link"), "first").unwrap();
    fs::set_permissions(at("elsewhere/target"), Permissions::from_mode(0o640)).unwrap();
    text(&at("link"), "second").unwrap();
    assert!(replace(&at("link"), |_| Err(io::Error::other("full"))).is_err());
    assert!(at("link").is_symlink());
    assert_eq!(fs::read_to_string(at("elsewhere/target")).unwrap(), "second");
    assert_eq!(fs::metadata(at("elsewhere/target")).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(fs::read_to_string(at("link.new")).unwrap(), "of the user");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count() + fs::read_dir(at("elsewhere")).unwrap().count(), 4);
    symlink("round", at("round")).unwrap();
    assert!(text(&at("round"), "").is_err());
    let why = text(&at("none/file"), "").unwrap_err();
    assert_eq!(why.to_string(), io::Error::from_raw_os_error(2).to_string());
}

#[test]
fn many_writers_of_one_name_all_succeed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("answer");
    std::thread::scope(|scope| {
        let write = || (0..50).try_for_each(|n| text(&path, &format!("{n}").repeat(1000)));
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(write)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    });
    let content = fs::read_to_string(&path).unwrap();
    assert!(content == "49".repeat(1000), "{} bytes", content.len());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
