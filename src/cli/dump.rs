//! `compile --dump`: a folder that gets a numbered file for each pass, all of them or none.

use crate::error::Error;
use compiler::pipeline;
use ir::text;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use support::files::{self, Draft};

/// Writer of a dump; the files reach the folder together.
pub(super) struct Dump<'a> {
    folder: &'a Path,
    /// Temporary folder of the files.
    draft: Draft,
    names: Vec<String>,
    failed: Option<Error>,
}

impl Dump<'_> {
    /// Prepares a dump into a folder, which may exist and have other files.
    ///
    /// # Errors
    /// The folder cannot be created or written.
    pub(super) fn create(folder: &Path) -> Result<Dump<'_>, Error> {
        let refused = |why| Error::file("create", folder, &why);
        let place = match fs::metadata(folder) {
            Ok(found) if !found.is_dir() => return Err(refused(io::ErrorKind::AlreadyExists.into())),
            Ok(_) => folder,
            Err(_) => folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")),
        };
        let draft = fs::create_dir_all(place).and_then(|()| files::draft(place)).map_err(refused)?;
        Ok(Dump { folder, draft, names: Vec::new(), failed: None })
    }

    /// Writes the output of a pass. The number is the place of the pass among all, so that a dump that continues from a
    /// file gives the same names.
    pub(super) fn write(&mut self, pass: &str, file: &text::File) {
        let place = pipeline::passes().iter().position(|row| row.name == pass).unwrap_or(0);
        self.text(format!("{:02}-{pass}.ir", place + 1), &text::print(file));
    }

    /// Writes the memory table.
    pub(super) fn write_memory(&mut self, table: &str) {
        self.text("memory.txt".into(), table);
    }

    /// Writes a file. After the first failure it writes nothing more.
    fn text(&mut self, name: String, text: &str) {
        if self.failed.is_some() {
            return;
        }
        match File::create_new(self.draft.path().join(&name)).and_then(|mut file| file.write_all(text.as_bytes())) {
            Ok(()) => self.names.push(name),
            Err(why) => self.failed = Some(Error::file("write", &self.folder.join(name), &why)),
        }
    }

    /// Moves all files into the folder and lists them.
    ///
    /// # Errors
    /// A file could not be written; the folder then has none of them.
    pub(super) fn finish(self) -> Result<String, Error> {
        let Dump { folder, draft, names, failed } = self;
        failed.map_or(Ok(()), Err)?;
        let refused = |why| Error::file("write", folder, &why);
        match folder.exists() {
            // The temporary folder is renamed to the folder, atomically.
            false => fs::rename(draft.keep(), folder).map_err(refused)?,
            true => {
                let in_the_way = names.iter().map(|name| folder.join(name)).find(|path| path.is_dir());
                if let Some(path) = in_the_way {
                    return Err(Error::file("write", &path, &io::ErrorKind::IsADirectory.into()));
                }
                let place = |name: &String| fs::rename(draft.path().join(name), folder.join(name));
                names.iter().try_for_each(place).map_err(refused)?;
            }
        }
        Ok(names.iter().map(|name| format!("{}\n", folder.join(name).display())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::status;
    use super::*;

    fn listed(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.collect();
        names.sort();
        names
    }

    #[test]
    fn a_dump_is_there_whole_or_not_at_all() {
        let outer = files::draft(&std::env::temp_dir()).unwrap();
        let folder = outer.path().join("new/dump");
        let mut dump = Dump::create(&folder).unwrap();
        dump.text("a".into(), "1");
        assert!(!folder.exists());
        assert_eq!(dump.finish().unwrap(), format!("{}\n", folder.join("a").display()));
        // A file that cannot be written must keep all others back, and leave an older dump unchanged.
        let mut dump = Dump::create(&folder).unwrap();
        dump.text("a".into(), "2");
        dump.text("none/b".into(), "2");
        dump.text("c".into(), "2");
        assert_eq!(status::of_error(&dump.finish().unwrap_err()), 1);
        assert_eq!((listed(&folder), fs::read_to_string(folder.join("a")).unwrap()), (vec!["a".into()], "1".into()));
        fs::create_dir(folder.join("b")).unwrap();
        let mut dump = Dump::create(&folder).unwrap();
        dump.text("a".into(), "3");
        dump.text("b".into(), "3");
        assert!(dump.finish().is_err());
        assert_eq!((listed(&folder).len(), fs::read_to_string(folder.join("a")).unwrap()), (2, "1".into()));
        assert_eq!(listed(&outer.path().join("new")), ["dump"]);
        assert!(Dump::create(&folder.join("a")).is_err(), "a file is in the way");
    }
}
