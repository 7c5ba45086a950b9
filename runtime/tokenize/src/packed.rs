//! Files that may be compressed, read as what they were before.

use ruzstd::decoding::BlockDecodingStrategy::UptoBlocks;
use ruzstd::decoding::FrameDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use support::files;

/// How a file is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packing {
    None,
    Gzip,
    Zstandard,
}

/// The bytes of a file, unpacked. `read` counts the bytes of the file itself.
pub(crate) fn open(path: &Path, packing: Packing, read: &Arc<AtomicU64>) -> io::Result<Box<dyn BufRead>> {
    let counted = Counted { file: files::open(path)?, read: read.clone() };
    let file = BufReader::with_capacity(1 << 18, counted);
    Ok(match packing {
        Packing::None => Box::new(file),
        Packing::Gzip => Box::new(BufReader::with_capacity(1 << 18, flate2::bufread::MultiGzDecoder::new(file))),
        Packing::Zstandard => Box::new(BufReader::with_capacity(1 << 18, Frames::new(file))),
    })
}

struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read(into)?;
        self.read.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

/// The frames of a file of Zstandard, one after the other. Parallel compressors write many.
struct Frames<R> {
    source: R,
    decoder: FrameDecoder,
    is_open: bool,
}

impl<R: BufRead> Frames<R> {
    fn new(source: R) -> Frames<R> {
        Frames { source, decoder: FrameDecoder::new(), is_open: false }
    }

    /// Begins the next frame. Returns whether there is one.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let skipped = io::copy(&mut self.source.by_ref().take(u64::from(length)), &mut io::sink())?;
                    if skipped < u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(why) => return Err(invalid(why)),
            }
        }
        Ok(false)
    }

    /// Ends a frame, whose checksum must be that of its bytes.
    fn end(&mut self) -> io::Result<()> {
        self.is_open = false;
        match self.decoder.get_checksum_from_data() {
            Some(stated) if self.decoder.get_calculated_checksum() != Some(stated) => {
                Err(invalid("the checksum of a frame is not that of its bytes"))
            }
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_open {
                self.is_open = self.begin()?;
                if !self.is_open {
                    return Ok(0);
                }
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder.decode_blocks(&mut self.source, UptoBlocks(1)).map_err(invalid)?;
            }
            match self.decoder.read(into)? {
                0 => self.end()?,
                bytes => return Ok(bytes),
            }
        }
    }
}

fn invalid(why: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}
