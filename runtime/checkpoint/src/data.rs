//! Data files: shards in the `safetensors` format (a length, a JSON header with names, shapes and offsets, then the
//! elements, little-endian). Files are written and read in chunks, so no file has to fit in memory.

use super::manifest::DataFile;
use crc32fast::Hasher;
use device::host;
use ir::types::DType;
use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensorError};
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use support::files;

/// Bytes of the header's length, and what the header is aligned to.
const LENGTH: usize = 8;

/// No header is longer: the bound of the format's own reader.
const MOST_HEADER: u64 = 100_000_000;

/// Bytes that are read or written at a time.
const PIECE: usize = 1 << 20;

/// A shard to be written: its key, its shape, its elements as they are stored, little-endian.
pub(super) struct Entry<'a> {
    pub(super) key: String,
    pub(super) shape: &'a [u64],
    pub(super) dtype: DType,
    pub(super) data: &'a [u8],
}

/// Writes a data file and sees that it is on the disk.
///
/// # Errors
/// The system refuses.
pub(super) fn write(folder: &Path, name: String, entries: &[Entry<'_>]) -> io::Result<DataFile> {
    let file = File::create_new(folder.join(&name))?;
    let mut out = Summed { inner: BufWriter::with_capacity(PIECE, file), hasher: Hasher::new(), bytes: 0 };
    let header = header(entries).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why.to_string()))?;
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    entries.iter().flat_map(|entry| entry.data.chunks(PIECE)).try_for_each(|piece| out.write_all(piece))?;
    let Summed { inner, hasher, bytes } = out;
    inner.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    Ok(DataFile { name, bytes, crc32: hexadecimal(hasher.finalize()) })
}

/// The name of an element type in a file.
fn in_file(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::BF16 => Dtype::BF16,
        DType::F16 => Dtype::F16,
        DType::F8E4M3 => Dtype::F8_E4M3,
        DType::F8E5M2 => Dtype::F8_E5M2,
        DType::I32 => Dtype::I32,
    }
}

/// The header: the range of each entry among the elements.
fn header(entries: &[Entry<'_>]) -> Result<Vec<u8>, SafeTensorError> {
    let (mut end, mut infos) = (0, Vec::with_capacity(entries.len()));
    for entry in entries {
        let start = end;
        end += entry.data.len();
        let shape = entry.shape.iter().map(|&size| size as usize).collect();
        infos.push((entry.key.clone(), TensorInfo { dtype: in_file(entry.dtype), shape, data_offsets: (start, end) }));
    }
    let mut text = serde_json::to_vec(&Metadata::new(None, infos)?)?;
    text.resize(text.len().next_multiple_of(LENGTH), b' ');
    Ok(text)
}

/// Difference between a data file and the manifest, if any.
pub(super) fn fault(folder: &Path, record: &DataFile) -> io::Result<Option<String>> {
    let file = files::open_in(folder, &record.name)?;
    let bytes = file.metadata()?.len();
    if bytes != record.bytes {
        return Ok(Some(format!("has {bytes} bytes, not {}", record.bytes)));
    }
    let (mut hasher, mut piece, mut file) = (Hasher::new(), vec![0; PIECE], file.take(bytes));
    loop {
        match file.read(&mut piece)? {
            0 => break,
            read => hasher.update(&piece[..read]),
        }
    }
    let sum = hexadecimal(hasher.finalize());
    Ok((sum != record.crc32).then(|| format!("has the checksum {sum}, not {}", record.crc32)))
}

/// An open data file.
pub(super) struct Reader {
    file: File,
    header: Metadata,
    /// Offset of the elements.
    start: u64,
}

impl Reader {
    /// Opens a data file and reads its header.
    ///
    /// # Errors
    /// The system refuses, or the header is broken.
    pub(super) fn open(folder: &Path, name: &str) -> io::Result<Reader> {
        let mut file = files::open_in(folder, name)?;
        let mut length = [0; LENGTH];
        file.read_exact(&mut length)?;
        let length = u64::from_le_bytes(length);
        if length > file.metadata()?.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if length > MOST_HEADER {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("its header has {length} bytes")));
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header)?;
        let header = serde_json::from_slice(&header)?;
        Ok(Reader { file, header, start: LENGTH as u64 + length })
    }

    /// The format of an entry of floats.
    pub(super) fn format(&self, key: &str) -> Option<DType> {
        let info = self.header.info(key)?;
        DType::ALL.iter().map(|(dtype, _)| *dtype).find(|dtype| dtype.is_float() && in_file(*dtype) == info.dtype)
    }

    /// The numbers of the elements `first .. first + count` of an entry of this shape, whatever the format of its floats.
    ///
    /// # Errors
    /// There is no such entry of floats, it is shorter, or the system refuses.
    pub(super) fn read(&mut self, key: &str, shape: &[u64], first: usize, count: usize) -> io::Result<Vec<f32>> {
        let (dtype, place) = self.place(key, shape, first, count).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("there is no complete `{key}` of floats {shape:?}"))
        })?;
        self.file.seek(SeekFrom::Start(place))?;
        let mut bytes = vec![0; count * dtype.bytes() as usize];
        self.file.read_exact(&mut bytes)?;
        Ok(host::numbers(dtype, &bytes))
    }

    /// The format of an entry of floats of this shape, and the offset of one of its elements, if there are `count` from it on.
    fn place(&self, key: &str, shape: &[u64], first: usize, count: usize) -> Option<(DType, u64)> {
        let info = self.header.info(key)?;
        let has_shape = info.shape.iter().map(|&size| size as u64).eq(shape.iter().copied());
        let dtype = self.format(key).filter(|_| has_shape)?;
        let (element, (begin, end)) = (dtype.bytes() as usize, info.data_offsets);
        let is_inside = (first + count) * element <= end - begin;
        is_inside.then_some((dtype, self.start + (begin + first * element) as u64))
    }
}

/// The CRC-32 of some bytes, in hexadecimal.
pub(super) fn checksum(bytes: &[u8]) -> String {
    hexadecimal(crc32fast::hash(bytes))
}

fn hexadecimal(sum: u32) -> String {
    format!("{sum:08x}")
}

/// A writer that sums up what goes through it.
struct Summed<W> {
    inner: W,
    hasher: Hasher,
    bytes: u64,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(piece)?;
        self.hasher.update(&piece[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Folder;
    use super::*;
    use safetensors::SafeTensors;
    use std::fs;

    #[test]
    fn others_read_what_is_written() {
        let folder = Folder::new("data");
        let (a, b) = ([1.0, -2.5, f32::MIN_POSITIVE, 4.0, 5.0, 6.0], [7.0]);
        let stored = [(DType::F32, &a[..]), (DType::BF16, &b)].map(|(dtype, numbers)| host::stored(dtype, numbers));
        let entries = [
            Entry { key: "w[0:2,3:6]".into(), shape: &[2, 3], dtype: DType::F32, data: &stored[0] },
            Entry { key: "b".into(), shape: &[], dtype: DType::BF16, data: &stored[1] },
        ];
        let record = write(&folder.0, "x".into(), &entries).unwrap();
        let path = folder.0.join("x");
        let bytes = fs::read(&path).unwrap();
        assert_eq!((record.bytes, record.crc32.clone()), (bytes.len() as u64, checksum(&bytes)));
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let read = file.tensor("w[0:2,3:6]").unwrap();
        assert_eq!((read.shape(), read.data()), (&[2, 3][..], &a.map(f32::to_le_bytes).concat()[..]));
        let read = file.tensor("b").unwrap();
        assert_eq!((read.dtype(), read.data()), (Dtype::BF16, &[0xe0, 0x40][..]));

        let mut reader = Reader::open(&folder.0, "x").unwrap();
        assert_eq!(reader.read("w[0:2,3:6]", &[2, 3], 2, 3).unwrap(), a[2..5]);
        assert_eq!(reader.read("b", &[], 0, 1).unwrap(), b);
        assert!(reader.read("b", &[], 0, 2).is_err() && reader.read("c", &[], 0, 1).is_err());
        assert!(reader.read("w[0:2,3:6]", &[3, 2], 2, 3).is_err(), "the header has another shape");

        assert_eq!(fault(&folder.0, &record).unwrap(), None);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, flipped).unwrap();
            assert!(fault(&folder.0, &record).unwrap().unwrap().contains("checksum"), "bit {bit}");
        }
        fs::write(&path, &bytes[1..]).unwrap();
        assert!(fault(&folder.0, &record).unwrap().unwrap().contains("bytes, not"));
    }

    #[test]
    fn the_checksum_is_crc_32() {
        // The check value of CRC-32/ISO-HDLC in Koopman's and Williams's catalogues.
        assert_eq!(checksum(b"123456789"), "cbf43926");
    }
}
