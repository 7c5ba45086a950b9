//! Files by name. Reads accept regular files only and enforce a size limit. Writes are atomic: a file gets its name when
//! its content is complete.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
pub use tempfile::TempDir as Draft;
use tempfile::{Builder, NamedTempFile};

/// Opens a regular file, or what a link to one means. A pipe, a device or a socket is refused: reading it might wait for
/// another process, or never end.
///
/// # Errors
/// The system refuses, or it is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    checked(path, &fs::metadata(path)?, OpenOptions::new().read(true), true)
}

/// Opens a regular file of a folder. A link is refused too, since it may lead out of the folder.
///
/// # Errors
/// The system refuses, or it is no regular file.
pub fn open_in(folder: &Path, name: &str) -> io::Result<File> {
    let path = folder.join(name);
    checked(&path, &fs::symlink_metadata(&path)?, OpenOptions::new().read(true), false)
}

/// Opens a regular file of a folder for reading and writing, and makes an empty one where there is none. A link is refused, since it
/// may lead out of the folder.
///
/// # Errors
/// The system refuses, or it is no regular file.
pub fn edit(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match fs::symlink_metadata(path) {
        Ok(found) => checked(path, &found, &mut options, false),
        Err(why) if why.kind() == ErrorKind::NotFound => open_as(path, options.create(true).truncate(false), false),
        Err(why) => Err(why),
    }
}

/// Why a name in a folder is not written to.
#[derive(Debug, thiserror::Error)]
#[error("it is a symbolic link, not a file")]
struct Linked;

fn linked() -> io::Error {
    io::Error::new(ErrorKind::Unsupported, Linked)
}

/// True if an error is that a name is a link, where links are not followed.
pub fn is_linked(why: &io::Error) -> bool {
    why.get_ref().is_some_and(|why| why.is::<Linked>())
}

/// Opens what was found to be regular. Another process may have put something else there since, so the open file is asked
/// too, and opening it must not wait.
fn checked(path: &Path, found: &Metadata, options: &mut OpenOptions, follow: bool) -> io::Result<File> {
    regular(found)?;
    let file = open_as(path, options, follow)?;
    regular(&file.metadata()?)?;
    Ok(file)
}

#[cfg(unix)]
fn open_as(path: &Path, options: &mut OpenOptions, follow: bool) -> io::Result<File> {
    use rustix::fs::OFlags;
    use rustix::io::Errno;
    use std::os::unix::fs::OpenOptionsExt;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = if follow { flags } else { flags | OFlags::NOFOLLOW };
    let opened = options.custom_flags(flags.bits() as i32).open(path);
    opened.map_err(|why| match Errno::from_io_error(&why) {
        Some(Errno::LOOP) if !follow => linked(),
        _ => why,
    })
}

/// Only Unix has a flag for links.
#[cfg(not(unix))]
fn open_as(path: &Path, options: &mut OpenOptions, _follow: bool) -> io::Result<File> {
    options.open(path)
}

fn regular(found: &Metadata) -> io::Result<()> {
    if found.is_file() {
        return Ok(());
    }
    if found.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if found.is_symlink() {
        return Err(linked());
    }
    Err(io::Error::new(ErrorKind::Unsupported, format!("it is {}, not a file", kind(found))))
}

#[cfg(unix)]
fn kind(found: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let kind = found.file_type();
    match () {
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    }
}

#[cfg(not(unix))]
fn kind(_found: &Metadata) -> &'static str {
    "a device"
}

/// All bytes of a regular file.
///
/// # Errors
/// It cannot be read, is no regular file, or is larger than the limit.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_all(open(path)?, limit)
}

/// All bytes that a reader has.
///
/// # Errors
/// It cannot be read, or has more than the limit.
pub fn read_all(file: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("it is larger than {} MiB", limit >> 20)));
    }
    Ok(bytes)
}

/// Makes the folder of a file, and those above it, where they are not.
///
/// # Errors
/// A folder cannot be made.
pub fn make_folder_of(path: &Path) -> io::Result<NewFolders> {
    let above = path.ancestors().skip(1).take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
    let folders = NewFolders(above.map(Path::to_path_buf).collect());
    folders.0.first().map_or(Ok(()), fs::create_dir_all)?;
    Ok(folders)
}

/// Folders that were made for a file, the innermost first. Those that are still empty when this is dropped are removed.
#[derive(Debug)]
#[must_use]
pub struct NewFolders(Vec<PathBuf>);

impl Drop for NewFolders {
    fn drop(&mut self) {
        // The system refuses to remove a folder that has a file.
        self.0.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }
}

/// Writes a file whole or not at all: under a name that no other file has, which it then loses. A link stays, and the file
/// that it means is replaced. A file that is replaced hands its permissions on.
///
/// # Errors
/// It cannot be written. Then what was there is as before.
pub fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>) -> io::Result<()> {
    replace_at(&meant(path)?, write)
}

/// Writes a file of a folder as [`replace`] does. A link is refused, since it may lead out of the folder.
///
/// # Errors
/// It cannot be written, or is a link. Then what was there is as before.
pub fn replace_in(
    folder: &Path,
    name: &str,
    write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> io::Result<()> {
    let path = folder.join(name);
    match fs::symlink_metadata(&path) {
        Ok(found) if found.is_symlink() => Err(linked()),
        _ => replace_at(&path, write),
    }
}

fn replace_at(target: &Path, write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>) -> io::Result<()> {
    let new = beside(target)?;
    if let Ok(old) = fs::symlink_metadata(target) {
        regular(&old)?;
        // A file system without permissions has none to hand on.
        let _ = new.as_file().set_permissions(old.permissions());
    }
    let mut out = BufWriter::new(new.as_file());
    write(&mut out)?;
    out.flush()?;
    drop(out);
    // A name that has become a link meanwhile is replaced itself.
    new.persist(target).map(drop).map_err(|why| why.error)
}

/// The same, but what is there and is no file, such as a pipe, is written to.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => {
            let file = OpenOptions::new().write(true).open(path)?;
            let mut out = BufWriter::new(&file);
            write(&mut out)?;
            out.flush()
        }
        _ => replace(path, write),
    }
}

/// Finds out before long work whether [`write()`] could write there.
///
/// # Errors
/// It could not.
pub fn check_writable(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(ErrorKind::IsADirectory.into()),
        // Opening a pipe to see would end it for who reads.
        Ok(found) if !found.is_file() => Ok(()),
        _ => beside(&meant(path)?).map(drop),
    }
}

/// A new folder in another. It is gone when it is dropped.
///
/// # Errors
/// The system refuses.
pub fn draft(folder: &Path) -> io::Result<Draft> {
    let mut builder = Builder::new();
    builder.prefix(".meshwright-").suffix(".new");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
    builder.tempdir_in(folder).map_err(plain)
}

/// A new file in the folder of another. It is gone when it is dropped.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = Builder::new();
    builder.prefix(".meshwright-").suffix(".new");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder).map_err(plain)
}

/// The error of the system without the name of the temporary file, which no user knows.
fn plain(why: io::Error) -> io::Error {
    let text = why.to_string();
    text.split_once(" at path ").map_or(why.kind().into(), |(said, _)| io::Error::new(why.kind(), said))
}

/// As many links follow each other on Linux.
const LINKS: usize = 40;

/// The path that links lead to, where nothing needs to be yet.
fn meant(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS {
        match fs::read_link(&path) {
            Ok(next) => path = path.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("its symbolic links go round in a circle"))
}

#[cfg(all(test, unix))]
mod tests;
