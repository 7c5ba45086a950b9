//! The forms of tokenised data, and what can be wrong with their files.

use super::super::DataError;
use super::file::{DocumentPlace, Documents, Layout, NamedFile, TokenFile, Width};
use super::labels::LabelFile;
use super::record::TokenRecord;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// How an index of Megatron's begins.
pub(super) const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";

/// The bytes of the head of such an index: the magic, version, width, and the numbers of sequences and documents.
const HEAD: u64 = 34;

/// The first number of a file of llm.c, and the bytes of its header.
const LLM_C: (i32, u64) = (20_240_520, 1024);

pub(super) fn open(path: &Path, layout: Option<Layout>, eos: Option<u32>) -> Result<Option<TokenFile>, DataError> {
    if let Some(layout) = layout {
        let width = if layout == Layout::Raw16 { Width::Two } else { Width::Four };
        return raw(path, width, 0, eos).map(Some);
    }
    let extension = path.extension().and_then(OsStr::to_str);
    if extension == Some("ds") && path.is_file() {
        return datatrove(path, &with(path, ".index")).map(Some);
    }
    let (bin, idx) = match extension {
        Some("bin" | "idx") => (path.with_extension("bin"), path.with_extension("idx")),
        _ => (with(path, ".bin"), with(path, ".idx")),
    };
    let has = (bin.is_file(), idx.is_file());
    // Of a prefix, which is no file itself, the one that is missing is named.
    if has == (true, true) || has != (false, false) && !path.exists() {
        return megatron(&bin, &idx).map(Some);
    }
    if extension == Some("bin") && path.is_file() {
        return llm_c(path, eos).map(Some);
    }
    Ok(None)
}

/// A path with a suffix after its whole name.
fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    PathBuf::from(name)
}

fn damaged(path: &Path, why: impl Into<String>) -> DataError {
    DataError::Damaged { path: path.into(), why: why.into() }
}

/// The number of 64 bits at a byte.
fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Megatron's form: `MMIDIDX`, a version, the width of ids, the number of sequences and of documents; then the length of each
/// sequence, its first byte, and the first sequence of each document. A sequence counts as a document here.
fn megatron(bin: &Path, idx: &Path) -> Result<TokenFile, DataError> {
    let (ids, index) = (NamedFile::open(bin)?, NamedFile::open(idx)?);
    let head = index.head(HEAD)?;
    if !head.starts_with(MAGIC) {
        return Err(damaged(idx, "is no index of Megatron's: it does not begin with MMIDIDX"));
    }
    let found = number(&head, 9).zip(head.get(17)).zip(number(&head, 18).zip(number(&head, 26)));
    let Some(((version, &code), (count, documents))) = found else {
        return Err(damaged(idx, format!("is cut off: {} bytes are no head", index.bytes())));
    };
    if version != 1 {
        return Err(damaged(idx, format!("has the version {version}; only 1 is known")));
    }
    let width = match code {
        8 => Width::Two,
        4 => Width::Four,
        _ => return Err(damaged(idx, format!("has ids of type {code}; only 8 (16 bits) and 4 (32 bits) are read"))),
    };
    let wanted = u128::from(count) * 12 + u128::from(documents) * 8 + u128::from(HEAD);
    if wanted != u128::from(index.bytes()) {
        return Err(damaged(idx, format!("has {} bytes, but {count} sequences need {wanted}", index.bytes())));
    }
    let documents = Documents::Megatron { index, lengths: HEAD, pointers: HEAD + 4 * count, count };
    let mut file = TokenFile { ids, first: 0, width, documents, record: None, labels: None };
    file.places(&mut |document, DocumentPlace { byte, ids }| {
        if !byte.is_multiple_of(width.bytes()) {
            return Err(damaged(idx, format!("says that document {document} begins at byte {byte}, within an id")));
        }
        match (byte / width.bytes()).checked_add(ids) {
            Some(end) if end <= file.count() => Ok(()),
            _ => {
                let bytes = file.ids.bytes();
                Err(damaged(bin, format!("has {bytes} bytes, and document {document} reaches beyond them")))
            }
        }
    })?;
    file.record = TokenRecord::read(bin, file.count())?;
    file.labels = LabelFile::open(bin, file.record.as_ref())?;
    Ok(file)
}

/// datatrove's form: ids, and in another file the end of each document.
fn datatrove(ds: &Path, path: &Path) -> Result<TokenFile, DataError> {
    let (ids, index) = (NamedFile::open(ds)?, NamedFile::open(path)?);
    let bytes = index.bytes();
    if bytes == 0 || !bytes.is_multiple_of(8) {
        return Err(damaged(path, format!("has {bytes} bytes, which are not whole numbers of 64 bits")));
    }
    let last = number(&index.read(bytes - 8..bytes)?, 0).unwrap_or(0);
    let width = match (last.checked_mul(2), last.checked_mul(4), ids.bytes()) {
        (Some(bytes), _, own) if bytes == own => Width::Two,
        (_, Some(bytes), own) if bytes == own => Width::Four,
        (.., own) => {
            return Err(damaged(ds, format!("has {own} bytes, but its index ends at id {last} of 16 or 32 bits")));
        }
    };
    let file = TokenFile { ids, first: 0, width, documents: Documents::Index(index), record: None, labels: None };
    let mut before = 0;
    file.ends(&mut |document, end| {
        if end < before {
            return Err(damaged(path, format!("does not ascend: document {document} ends at {end}, after {before}")));
        }
        before = end;
        Ok(())
    })?;
    Ok(file)
}

/// llm.c's form: 256 numbers of 32 bits. The second is the version, the third the number of ids.
fn llm_c(path: &Path, eos: Option<u32>) -> Result<TokenFile, DataError> {
    let file = NamedFile::open(path)?;
    let (magic, first) = LLM_C;
    let (bytes, head) = (file.bytes(), file.head(first)?);
    let mut words = head.as_chunks::<4>().0.iter().map(|word| i32::from_le_bytes(*word));
    if words.next() != Some(magic) || bytes < first {
        let why =
            "has no index next to it, and is no file of llm.c: say what it is with --data-format raw-u16 or raw-u32";
        return Err(damaged(path, why));
    }
    let (version, count) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
    if version != 1 {
        return Err(damaged(path, format!("has the version {version} of llm.c; only 1 is known")));
    }
    if bytes != first + 2 * u64::from(count.max(0).cast_unsigned()) {
        return Err(damaged(path, format!("has {bytes} bytes, but its header counts {count} ids")));
    }
    raw(path, Width::Two, first, eos)
}

/// Ids from a byte on. `eos` ends a document; without it all is one.
fn raw(path: &Path, width: Width, first: u64, eos: Option<u32>) -> Result<TokenFile, DataError> {
    let ids = NamedFile::open(path)?;
    let bytes = ids.bytes();
    if bytes < first || !(bytes - first).is_multiple_of(width.bytes()) {
        return Err(damaged(path, format!("has {bytes} bytes, which are not whole ids of {}", width.bytes())));
    }
    let mut file = TokenFile { ids, first, width, documents: Documents::Ends(Vec::new()), record: None, labels: None };
    let (all, mut ends, mut at) = (file.count(), Vec::new(), 0);
    if let Some(eos) = eos {
        file.each_id(|id| {
            at += 1;
            ends.extend((id == eos).then_some(at));
        })?;
    }
    if all > 0 && ends.last() != Some(&all) {
        ends.push(all);
    }
    file.documents = Documents::Ends(ends);
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn ids(file: &TokenFile) -> Vec<Vec<u32>> {
        (0..file.documents()).map(|number| file.document(number).unwrap()).collect()
    }

    fn words<const N: usize>(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()[..N].to_vec()).collect()
    }

    /// The index of documents of these lengths.
    fn index(code: u8, lengths: &[u64], width: u64) -> Vec<u8> {
        let starts: Vec<u64> = (0..lengths.len()).map(|at| width * lengths[..at].iter().sum::<u64>()).collect();
        let documents: Vec<u64> = (0..=lengths.len() as u64).collect();
        let counts = [lengths.len() as u64, documents.len() as u64];
        let head = [&MAGIC[..], &words::<8>(&[1]), &[code], &words::<8>(&counts)].concat();
        [head, words::<4>(lengths), words::<8>(&starts), words::<8>(&documents)].concat()
    }

    #[test]
    fn all_forms_have_the_same_documents() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let [a, b] = [[5, 6, 0], [7, 0, 0]];
        let numbers = [5, 6, 0, 7, 0];
        fs::write(at("m.bin"), words::<2>(&numbers)).unwrap();
        fs::write(at("m.idx"), index(8, &[3, 2], 2)).unwrap();
        fs::write(at("w.bin"), words::<4>(&numbers)).unwrap();
        fs::write(at("w.idx"), index(4, &[3, 2], 4)).unwrap();
        fs::write(at("d.ds"), words::<4>(&numbers)).unwrap();
        fs::write(at("d.ds.index"), words::<8>(&[3, 5])).unwrap();
        let mut head = words::<4>(&[20_240_520, 1, 5]);
        head.resize(1024, 0);
        fs::write(at("l.bin"), [head, words::<2>(&numbers)].concat()).unwrap();
        fs::write(at("r.data"), words::<2>(&numbers)).unwrap();
        let open = |name: &str, layout| open(&at(name), layout, Some(0)).unwrap().unwrap();
        let names = [("m", None), ("m.bin", None), ("m.idx", None), ("w", None), ("d.ds", None), ("l.bin", None)];
        for (name, layout) in names.into_iter().chain([("r.data", Some(Layout::Raw16))]) {
            assert_eq!(ids(&open(name, layout)), [a[..3].to_vec(), b[..2].to_vec()], "{name}");
        }
        assert!(super::open(&at("none"), None, None).unwrap().is_none());
    }

    #[test]
    fn what_is_wrong_with_a_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let index = index(8, &[3, 2], 2);
        let cut = &index[..index.len() - 8]; // an index that ends early
        let (whole, short) = (words::<2>(&[5, 6, 0, 7, 0]), words::<2>(&[5, 6, 0, 7]));
        let version = [&MAGIC[..], &words::<8>(&[2]), &index[17..]].concat();
        let float = [&index[..17], &[6], &index[18..]].concat();
        for (bin, idx, why) in [
            (&whole, cut, "2 sequences need"),
            (&whole, &index[..20], "is cut off"),
            (&short, &index[..], "document 1 reaches beyond"),
            (&whole, b"text", "does not begin with MMIDIDX"),
            (&whole, &version, "the version 2"),
            (&whole, &float, "ids of type 6"),
        ] {
            fs::write(at("m.bin"), bin).unwrap();
            fs::write(at("m.idx"), idx).unwrap();
            let error = open(&at("m"), None, None).err().unwrap();
            assert!(matches!(&error, DataError::Damaged { .. }) && error.to_string().contains(why), "{error}");
        }
        fs::write(at("d.ds"), &whole).unwrap();
        for (ends, why) in [(&[3, 4][..], "ends at id 4"), (&[6, 5], "does not ascend"), (&[], "0 bytes")] {
            fs::write(at("d.ds.index"), words::<8>(ends)).unwrap();
            let error = open(&at("d.ds"), None, None).err().unwrap();
            assert!(error.to_string().contains(why), "{error}");
        }
        fs::write(at("odd.bin"), b"odd").unwrap();
        let error = open(&at("odd.bin"), None, None).err().unwrap();
        assert!(error.to_string().contains("--data-format raw-u16"), "{error}");
        let error = open(&at("odd.bin"), Some(Layout::Raw16), None).err().unwrap();
        assert!(error.to_string().contains("not whole ids of 2"), "{error}");
    }
}
