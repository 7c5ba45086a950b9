//! Text files to a training part and a held-out part of byte tokens.

use super::{DataError, Part, Role, mix};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Share of the bytes that is held out when nothing else is asked for.
pub const DEFAULT_VALID_FRACTION: f64 = 0.1;

/// Bytes per unit of the split.
const CHUNK: usize = 4096;

/// What a run writes: a folder that holds it is no text to learn from.
const OUTPUT: &str = "metrics.jsonl";

/// Bytes looked at to tell text from binary.
const HEAD: u64 = 8192;

/// The text of a file or folder, split for training and validation.
#[derive(Clone, Debug)]
pub struct TextData {
    /// What the model learns from.
    pub train: Part,
    /// What measures it; shares no byte with `train`.
    pub valid: Part,
    /// Documents read: text files with at least one byte.
    pub documents: usize,
    /// Files left out as empty or binary.
    pub skipped: usize,
}

impl TextData {
    /// Reads a text file, or every text file below a folder, one document each, and holds out about `valid_fraction`
    /// of the bytes.
    ///
    /// Files are taken in the order of their paths. Hidden entries, folders named `target` or that hold the outputs of a
    /// run, symbolic links and binary files below the folder are left out. Held-out chunks are chosen by their content alone, so file names and
    /// order do not matter; one chunk always stays for training.
    ///
    /// # Errors
    /// Every [`DataError`] but those of a sequence length, which the sampler knows.
    pub fn load(path: &Path, valid_fraction: f64) -> Result<Self, DataError> {
        if !(0.0..1.0).contains(&valid_fraction) {
            return Err(DataError::Fraction { fraction: valid_fraction });
        }
        let files = find_files(path)?;
        let mut documents = Vec::new();
        for file in &files {
            let bytes = read_text(file).map_err(unreadable(file))?;
            documents.extend(bytes.filter(|bytes| !bytes.is_empty()));
        }
        if documents.is_empty() {
            return Err(DataError::NoText { path: path.into(), files: files.len() });
        }
        let held_out = hold_out(&documents, valid_fraction);
        let (train, valid) = split(path, &documents, &held_out);
        Ok(Self { train, valid, documents: documents.len(), skipped: files.len() - documents.len() })
    }
}

impl TextData {
    /// The CRC-32 of all tokens, those to learn from first: which text it is, wherever it lies.
    pub fn checksum(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        for token in self.train.tokens().iter().chain(self.valid.tokens()) {
            hasher.update(&token.to_le_bytes());
        }
        hasher.finalize()
    }
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> DataError + use<> {
    let path = path.to_path_buf();
    |source| DataError::Unreadable { path, source }
}

/// The files to consider, sorted by path.
fn find_files(path: &Path) -> Result<Vec<PathBuf>, DataError> {
    let kind = fs::metadata(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => DataError::Missing { path: path.into() },
        _ => unreadable(path)(source),
    })?;
    if kind.is_file() {
        return Ok(vec![path.into()]);
    }
    if !kind.is_dir() {
        return Err(DataError::NotAFile { path: path.into() });
    }
    let mut files = Vec::new();
    let mut folders = vec![path.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(unreadable(&folder))? {
            let entry = entry.map_err(unreadable(&folder))?;
            let kind = entry.file_type().map_err(unreadable(&entry.path()))?;
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            if kind.is_file() {
                files.push(entry.path());
            } else if kind.is_dir() && name != OsStr::new("target") && !entry.path().join(OUTPUT).exists() {
                folders.push(entry.path());
            }
        }
    }
    if files.is_empty() {
        return Err(DataError::EmptyFolder { path: path.into() });
    }
    files.sort();
    Ok(files)
}

/// The bytes of a file, or `None` where its head is not text; the rest of a binary file is not read.
fn read_text(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    file.by_ref().take(HEAD).read_to_end(&mut bytes)?;
    if !is_text(&bytes) {
        return Ok(None);
    }
    file.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// No NUL, and at most a third of the bytes are not UTF-8: the rule of Perl's `-T` (perldoc perlfunc, -X).
fn is_text(head: &[u8]) -> bool {
    let invalid: usize = head.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    !head.contains(&0) && invalid * 3 <= head.len()
}

/// Says for every chunk, in stream order, whether it is held out: those with the least hashes, until they hold
/// `fraction` of the bytes.
fn hold_out(documents: &[Vec<u8>], fraction: f64) -> Vec<bool> {
    let chunks: Vec<&[u8]> = documents.iter().flat_map(|document| document.chunks(CHUNK)).collect();
    let mut order: Vec<usize> = (0..chunks.len()).collect();
    order.sort_by_cached_key(|&i| hash(chunks[i]));
    order.pop();

    let total: usize = documents.iter().map(Vec::len).sum();
    let wanted = (fraction * total as f64).round() as usize;
    let mut held_out = vec![false; chunks.len()];
    let mut held = 0;
    for i in order {
        if held >= wanted {
            break;
        }
        held_out[i] = true;
        held += chunks[i].len();
    }
    held_out
}

/// FNV-1a (Fowler, Noll, Vo; RFC 9923), scattered so that order by hash is independent of the last bytes.
fn hash(bytes: &[u8]) -> u64 {
    mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, &byte| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)))
}

/// Deals the chunks out; adjacent chunks of a document on the same side are one segment.
fn split(path: &Path, documents: &[Vec<u8>], held_out: &[bool]) -> (Part, Part) {
    let mut train = Part::new(Role::Training, path.into());
    let mut valid = Part::new(Role::HeldOut, path.into());
    let mut sides = held_out.iter().copied();
    for document in documents {
        let mut last = None;
        for (bytes, held) in document.chunks(CHUNK).zip(&mut sides) {
            let part = if held { &mut valid } else { &mut train };
            if last != Some(held) {
                part.open();
            }
            part.extend(bytes);
            last = Some(held);
        }
        match last {
            Some(true) => valid.end_document(),
            Some(false) => train.end_document(),
            None => {}
        }
    }
    (train, valid)
}

#[cfg(test)]
mod tests {
    use super::super::END_OF_DOCUMENT;
    use super::*;

    /// A folder of its own for a test, removed when it ends.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("meshwright-text-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, bytes).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// `chunks` numbered chunks, so that every one is told from every other.
    fn document(seed: usize, chunks: usize) -> Vec<u8> {
        (0..chunks).flat_map(|i| format!("{seed:04}/{i:02} ").repeat(CHUNK / 8).into_bytes()).collect()
    }

    /// The chunks of a part, sorted, without the document ends.
    fn chunks(part: &Part) -> Vec<Vec<u16>> {
        let bytes = |segment: &[u16]| segment.iter().copied().filter(|&t| t != END_OF_DOCUMENT).collect::<Vec<_>>();
        let mut chunks: Vec<Vec<u16>> =
            part.segments().flat_map(|s| bytes(s).chunks(CHUNK).map(<[u16]>::to_vec).collect::<Vec<_>>()).collect();
        chunks.sort();
        chunks
    }

    #[test]
    fn split_is_disjoint_whole_and_of_the_size_asked_for() {
        let folder = Folder::new("split");
        for i in 0..20 {
            folder.write(&format!("{i}.txt"), &document(i, 10));
        }
        let data = TextData::load(&folder.0, 0.1).unwrap();
        let (train, valid) = (chunks(&data.train), chunks(&data.valid));
        assert_eq!((train.len(), valid.len()), (180, 20));
        assert!(valid.iter().all(|chunk| train.binary_search(chunk).is_err()));
        let ends = |part: &Part| part.tokens().iter().filter(|&&t| t == END_OF_DOCUMENT).count();
        assert_eq!(ends(&data.train) + ends(&data.valid), 20);
        // Representative: the 20 chunks come from many documents.
        let mut from: Vec<_> = valid.iter().map(|chunk| chunk[..4].to_vec()).collect();
        from.dedup();
        assert!(from.len() >= 8, "held-out chunks come from {} documents", from.len());
    }

    #[test]
    fn split_does_not_depend_on_file_names() {
        let (one, other) = (Folder::new("names-1"), Folder::new("names-2"));
        for i in 0..12 {
            one.write(&format!("{i:02}"), &document(i, 3));
            other.write(&format!("sub/{:02}", 11 - i), &document(i, 3));
        }
        let [one, other] = [&one, &other].map(|folder| TextData::load(&folder.0, 0.25).unwrap());
        assert_eq!(chunks(&one.valid), chunks(&other.valid));
        assert_ne!(one.train.tokens(), other.train.tokens());
    }

    #[test]
    fn segments_end_where_a_document_or_a_run_ends() {
        let documents = [vec![b'a'; 3 * CHUNK], vec![b'b'; 2]];
        let (train, valid) = split(Path::new("x"), &documents, &[false, false, true, false]);
        assert_eq!(train.segments().map(<[u16]>::len).collect::<Vec<_>>(), [2 * CHUNK, 3]);
        assert_eq!(train.segments().last().unwrap(), [98, 98, END_OF_DOCUMENT]);
        assert_eq!(valid.segments().map(<[u16]>::len).collect::<Vec<_>>(), [CHUNK + 1]);
    }

    #[test]
    fn only_text_that_is_meant_is_read_in_order_of_paths() {
        let folder = Folder::new("skip");
        folder.write("b/z.txt", b"two");
        folder.write("a.txt", "\u{e9}t\u{e9}".as_bytes());
        folder.write(".git/config", b"hidden");
        folder.write(".hidden", b"hidden");
        folder.write("target/out.txt", b"built");
        folder.write("empty", b"");
        folder.write("nul.bin", b"text\0text");
        folder.write("latin.bin", &[0xff, b'a', 0xfe]);
        #[cfg(unix)]
        std::os::unix::fs::symlink(folder.0.join("a.txt"), folder.0.join("link")).unwrap();
        let data = TextData::load(&folder.0, 0.0).unwrap();
        let expected: Vec<u16> = "\u{e9}t\u{e9}".bytes().map(u16::from).chain([256, 116, 119, 111, 256]).collect();
        assert_eq!(data.train.tokens(), expected);
        assert_eq!((data.documents, data.skipped), (2, 3));
        assert!(data.valid.tokens().is_empty());
    }

    #[test]
    fn text_is_judged_by_its_head() {
        assert!(is_text(b"a\xff\xfebcde"), "a third is still text");
        assert!(!is_text(b"a\xff\xfebcd\xff"));
        let folder = Folder::new("head");
        let mut bytes = vec![b'a'; HEAD as usize];
        bytes.push(0);
        let file = folder.write("late", &bytes);
        assert_eq!(TextData::load(&file, 0.0).unwrap().train.tokens().len(), bytes.len() + 1);
        bytes[HEAD as usize - 1] = 0;
        fs::write(&file, &bytes).unwrap();
        assert!(matches!(TextData::load(&file, 0.0), Err(DataError::NoText { files: 1, .. })));
    }

    #[test]
    fn one_chunk_stays_for_training() {
        let folder = Folder::new("stays");
        let file = folder.write("same.txt", &vec![b'a'; 2 * CHUNK]);
        let data = TextData::load(&file, 0.99).unwrap();
        assert_eq!((data.train.segments().count(), data.valid.segments().count()), (1, 1));
    }

    #[test]
    fn each_fault_has_its_error() {
        let folder = Folder::new("faults");
        let load = |path: &Path| TextData::load(path, 0.1).unwrap_err();
        assert!(matches!(load(&folder.0), DataError::EmptyFolder { .. }));
        assert!(matches!(load(&folder.0.join("none")), DataError::Missing { .. }));
        let file = folder.write("binary", b"\0");
        assert!(matches!(load(&folder.0), DataError::NoText { files: 1, .. }));
        assert!(matches!(load(&file.join("below")), DataError::Unreadable { .. } | DataError::Missing { .. }));
        for fraction in [-0.1, 1.0, f64::NAN] {
            assert!(matches!(TextData::load(&file, fraction), Err(DataError::Fraction { .. })));
        }
        #[cfg(unix)]
        assert!(matches!(load(Path::new("/dev/null")), DataError::NotAFile { .. }));
    }
}
