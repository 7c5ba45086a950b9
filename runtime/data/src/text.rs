//! Text files to a training part and a held-out part of byte tokens.

use super::{DataError, END_OF_DOCUMENT, Part, Role, mix};
use device::memory;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::files;

/// Share of the bytes that is held out when nothing else is asked for.
pub const DEFAULT_VALID_FRACTION: f64 = 0.1;

/// Bytes per unit of the split.
const CHUNK: usize = 4096;

/// File that a run writes. A folder that has it is not read as text.
const OUTPUT: &str = "metrics.jsonl";

/// Bytes read to distinguish text from binary.
pub const HEAD: u64 = 8192;

/// The text of a file or folder, split for training and validation.
#[derive(Clone, Debug)]
pub struct TextData {
    /// The training text.
    pub train: Part,
    /// The validation text; it shares no byte with `train`.
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
    /// order do not matter; one chunk always stays for training. The text takes its own size of memory, which must not be
    /// more than `free`.
    ///
    /// # Errors
    /// Every [`DataError`] but those of a sequence length, which the sampler knows.
    pub fn load(path: &Path, valid_fraction: f64, free: u64) -> Result<Self, DataError> {
        if !(0.0..1.0).contains(&valid_fraction) {
            return Err(DataError::Fraction { fraction: valid_fraction });
        }
        let files = find_files(path)?;
        let mut texts = Vec::new();
        for file in &files {
            let bytes = text_bytes(file).map_err(unreadable(file))?;
            texts.extend((bytes > 0).then_some((file, bytes)));
        }
        if texts.is_empty() {
            return Err(DataError::NoText { path: path.into(), files: files.len() });
        }
        let bytes = texts.iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes));
        if bytes > free {
            return Err(DataError::TooLarge { path: path.into(), bytes, free });
        }
        let (mut documents, mut held) = (Vec::new(), 0);
        for (file, expected) in texts {
            let Some(read) = read(file, expected).map_err(unreadable(file))? else {
                return Err(DataError::TooLarge { path: path.into(), bytes, free: held });
            };
            held += read.len() as u64;
            documents.push(read);
        }
        let held_out = hold_out(&documents, valid_fraction);
        let documents: Arc<[Vec<u8>]> = documents.into();
        let (train, valid) = split(path, &documents, &held_out);
        Ok(Self { train, valid, documents: documents.len(), skipped: files.len() - documents.len() })
    }
}

impl TextData {
    /// The bytes of the text, each a token.
    pub fn bytes(&self) -> u64 {
        (self.train.tokens() + self.valid.tokens() - self.documents) as u64
    }

    /// The CRC-32 of all tokens, training tokens first: identity of the text, wherever the file is.
    pub fn checksum(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        let mut piece = Vec::with_capacity(2 * CHUNK);
        for segment in self.train.segments().chain(self.valid.segments()) {
            for bytes in segment.bytes.chunks(CHUNK) {
                piece.clear();
                piece.extend(bytes.iter().flat_map(|&byte| u16::from(byte).to_le_bytes()));
                hasher.update(&piece);
            }
            let end = segment.ends.then_some(END_OF_DOCUMENT.to_le_bytes());
            end.iter().for_each(|end| hasher.update(end));
        }
        hasher.finalize()
    }
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> DataError + use<> {
    let path = path.to_path_buf();
    |source| DataError::Unreadable { path, source }
}

/// The files to consider, sorted by path: a file, or those below a folder but for hidden ones, links, and what a build or a run made.
///
/// # Errors
/// There is none, or a folder cannot be read.
pub fn find_files(path: &Path) -> Result<Vec<PathBuf>, DataError> {
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

/// How many bytes of text a file has: none where its head is not text.
fn text_bytes(path: &Path) -> io::Result<u64> {
    let file = files::open(path)?;
    let bytes = file.metadata()?.len();
    let mut head = Vec::new();
    file.take(HEAD.min(bytes)).read_to_end(&mut head)?;
    Ok(if is_text(&head) { bytes } else { 0 })
}

/// The bytes of a file up to its size when it was found; `None` if there is no memory for them.
fn read(path: &Path, bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let (file, mut read) = (files::open(path)?, Vec::new());
    if !memory::granted(|| read.try_reserve_exact(usize::try_from(bytes).unwrap_or(usize::MAX)).is_ok()) {
        return Ok(None);
    }
    file.take(bytes).read_to_end(&mut read)?;
    Ok(Some(read))
}

/// No NUL, and at most a third of the bytes are not UTF-8: the rule of Perl's `-T` (perldoc perlfunc, -X).
pub fn is_text(head: &[u8]) -> bool {
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
fn split(path: &Path, documents: &Arc<[Vec<u8>]>, held_out: &[bool]) -> (Part, Part) {
    let mut train = Part::new(Role::Training, path.into(), documents.clone());
    let mut valid = Part::new(Role::HeldOut, path.into(), documents.clone());
    let mut sides = held_out;
    for (number, document) in documents.iter().enumerate() {
        let (own, others) = sides.split_at(document.len().div_ceil(CHUNK));
        sides = others;
        let mut first = 0;
        for run in own.chunk_by(|one, next| one == next) {
            let end = (first + run.len() * CHUNK).min(document.len());
            let part = if run[0] { &mut valid } else { &mut train };
            part.push(number, first..end);
            first = end;
        }
    }
    (train, valid)
}

#[cfg(test)]
mod tests {
    use super::super::Segment;
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

    /// `chunks` numbered chunks, all distinct.
    fn document(seed: usize, chunks: usize) -> Vec<u8> {
        (0..chunks).flat_map(|i| format!("{seed:04}/{i:02} ").repeat(CHUNK / 8).into_bytes()).collect()
    }

    /// The chunks of a part, sorted, without the document ends.
    fn chunks(part: &Part) -> Vec<Vec<u8>> {
        let mut chunks: Vec<Vec<u8>> =
            part.segments().flat_map(|s| s.bytes.chunks(CHUNK).map(<[u8]>::to_vec)).collect();
        chunks.sort();
        chunks
    }

    fn tokens(part: &Part) -> Vec<u16> {
        part.segments().flat_map(|segment| (0..segment.tokens()).filter_map(move |at| segment.token(at))).collect()
    }

    #[test]
    fn split_is_disjoint_whole_and_of_the_size_asked_for() {
        let folder = Folder::new("split");
        for i in 0..20 {
            folder.write(&format!("{i}.txt"), &document(i, 10));
        }
        let data = TextData::load(&folder.0, 0.1, u64::MAX).unwrap();
        let (train, valid) = (chunks(&data.train), chunks(&data.valid));
        assert_eq!((train.len(), valid.len()), (180, 20));
        assert!(valid.iter().all(|chunk| train.binary_search(chunk).is_err()));
        let ends = |part: &Part| part.segments().filter(|segment| segment.ends).count();
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
        let [one, other] = [&one, &other].map(|folder| TextData::load(&folder.0, 0.25, u64::MAX).unwrap());
        assert_eq!(chunks(&one.valid), chunks(&other.valid));
        assert_ne!(tokens(&one.train), tokens(&other.train));
    }

    #[test]
    fn segments_end_where_a_document_or_a_run_ends() {
        let documents: Arc<[Vec<u8>]> = vec![vec![b'a'; 3 * CHUNK], vec![b'b'; 2]].into();
        let (train, valid) = split(Path::new("x"), &documents, &[false, false, true, false]);
        let lengths = |part: &Part| part.segments().map(|segment| segment.tokens()).collect::<Vec<_>>();
        assert_eq!((lengths(&train), lengths(&valid)), (vec![2 * CHUNK, 3], vec![CHUNK + 1]));
        assert_eq!((train.tokens(), valid.tokens()), (2 * CHUNK + 3, CHUNK + 1));
        assert_eq!(train.segments().last(), Some(Segment { start: 2 * CHUNK, bytes: b"bb", ends: true }));
        assert_eq!(tokens(&train)[2 * CHUNK..], [98, 98, END_OF_DOCUMENT]);
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
        let data = TextData::load(&folder.0, 0.0, u64::MAX).unwrap();
        let expected: Vec<u16> = "\u{e9}t\u{e9}".bytes().map(u16::from).chain([256, 116, 119, 111, 256]).collect();
        assert_eq!(tokens(&data.train), expected);
        assert_eq!((data.documents, data.skipped), (2, 3));
        assert_eq!(data.valid.tokens(), 0);
        let whole: Vec<u8> = expected.into_iter().flat_map(u16::to_le_bytes).collect();
        assert_eq!(data.checksum(), crc32fast::hash(&whole));
    }

    #[test]
    fn text_is_judged_by_its_head() {
        assert!(is_text(b"a\xff\xfebcde"), "a third is still text");
        assert!(!is_text(b"a\xff\xfebcd\xff"));
        let folder = Folder::new("head");
        let mut bytes = vec![b'a'; HEAD as usize];
        bytes.push(0);
        let file = folder.write("late", &bytes);
        assert_eq!(TextData::load(&file, 0.0, u64::MAX).unwrap().train.tokens(), bytes.len() + 1);
        bytes[HEAD as usize - 1] = 0;
        fs::write(&file, &bytes).unwrap();
        assert!(matches!(TextData::load(&file, 0.0, u64::MAX), Err(DataError::NoText { files: 1, .. })));
    }

    #[test]
    fn one_chunk_stays_for_training() {
        let folder = Folder::new("stays");
        let file = folder.write("same.txt", &vec![b'a'; 2 * CHUNK]);
        let data = TextData::load(&file, 0.99, u64::MAX).unwrap();
        assert_eq!((data.train.segments().count(), data.valid.segments().count()), (1, 1));
    }

    #[test]
    fn text_beyond_the_room_is_refused_before_it_is_read() {
        let folder = Folder::new("room");
        folder.write("a", &[b'a'; 3000]);
        folder.write("b", &[b'b'; 2000]);
        folder.write("weights", &[0; 9000]);
        assert_eq!(TextData::load(&folder.0, 0.0, 5000).unwrap().train.tokens(), 5002);
        assert!(matches!(
            TextData::load(&folder.0, 0.0, 4999),
            Err(DataError::TooLarge { bytes: 5000, free: 4999, .. })
        ));
    }

    #[test]
    fn each_fault_has_its_error() {
        let folder = Folder::new("faults");
        let load = |path: &Path| TextData::load(path, 0.1, u64::MAX).unwrap_err();
        assert!(matches!(load(&folder.0), DataError::EmptyFolder { .. }));
        assert!(matches!(load(&folder.0.join("none")), DataError::Missing { .. }));
        let file = folder.write("binary", b"\0");
        assert!(matches!(load(&folder.0), DataError::NoText { files: 1, .. }));
        assert!(matches!(load(&file.join("below")), DataError::Unreadable { .. } | DataError::Missing { .. }));
        for fraction in [-0.1, 1.0, f64::NAN] {
            assert!(matches!(TextData::load(&file, fraction, u64::MAX), Err(DataError::Fraction { .. })));
        }
        #[cfg(unix)]
        assert!(matches!(load(Path::new("/dev/null")), DataError::NotAFile { .. }));
    }
}
