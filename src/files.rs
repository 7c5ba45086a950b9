//! Text files of the user's, read and written whole.

use crate::error::Error;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// No text that is read whole is larger: a level of Llama 3.1 405B on a large mesh prints as some megabytes.
const MOST_BYTES: u64 = 1 << 28;

/// The text of a file; `-` is standard input.
///
/// # Errors
/// It cannot be read, is no UTF-8, or does not end.
pub fn read_text(path: &Path) -> Result<String, Error> {
    let text = if path == Path::new("-") { whole(io::stdin().lock()) } else { File::open(path).and_then(whole) };
    text.map_err(|why| Error::file("read", path, &why))
}

fn whole(file: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {} MiB", MOST_BYTES >> 20)));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text in UTF-8"))
}

/// Writes a file whole or not at all: under another name, which it then loses. What is no file, such as a pipe, is written to.
///
/// # Errors
/// It cannot be written.
pub fn write_text(path: &Path, text: &str) -> Result<(), Error> {
    if path.exists() && !path.is_file() {
        return fs::write(path, text).map_err(|why| Error::file("write", path, &why));
    }
    let new = beside(path);
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
    written.map_err(|why| {
        let _ = fs::remove_file(&new);
        Error::file("write", path, &why)
    })
}

/// Finds out before long work whether [`write_text`] could write there.
///
/// # Errors
/// It could not.
pub fn check_writable(path: &Path) -> Result<(), Error> {
    if path.is_dir() {
        return Err(Error::file("write", path, &io::Error::from(io::ErrorKind::IsADirectory)));
    }
    if path.exists() && !path.is_file() {
        // Opening a pipe to see would end it for who reads.
        return Ok(());
    }
    let new = beside(path);
    let made = File::create(&new).and_then(|_| fs::remove_file(&new));
    made.map_err(|why| Error::file("write", path, &why))
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::FileTypeExt;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let path = std::env::temp_dir().join(format!("meshwright-files-{}", std::process::id()));
        let _socket = UnixListener::bind(&path).unwrap();
        assert!(check_writable(&path).is_ok());
        assert!(write_text(&path, "text").is_err(), "a socket cannot be opened");
        assert!(path.metadata().unwrap().file_type().is_socket());
        fs::remove_file(&path).unwrap();
    }
}
