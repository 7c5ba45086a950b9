//! Frames: a message goes as one or several, each a header and bytes. Between two frames of a message a notice may go.

use crc32fast::Hasher;

/// Bytes of a header.
pub(crate) const HEADER: usize = 16;

/// The most bytes of a message in a frame: so long may a notice have to wait for a message.
pub(crate) const MOST_IN_FRAME: usize = 1 << 20;

/// Tags that are no message's: of a notice, and of the last frame before an end that all have agreed on.
pub(crate) const NOTICE: u32 = 0;
pub(crate) const END: u32 = u32::MAX;

/// A header: the tag of the message, and its bytes from this frame on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) tag: u32,
    pub(crate) rest: u64,
}

impl Header {
    /// Bytes of the message in this frame.
    pub(crate) fn bytes(self) -> usize {
        self.rest.min(MOST_IN_FRAME as u64) as usize
    }

    /// The header as it goes, in the frame of a number.
    pub(crate) fn write(self, number: u64) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&self.tag.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.rest.to_le_bytes());
        bytes[12..].copy_from_slice(&self.check(number).to_le_bytes());
        bytes
    }

    /// The header of the frame of a number; `None` if it is none.
    pub(crate) fn read(bytes: [u8; HEADER], number: u64) -> Option<Header> {
        let [tag, low, high, check] =
            [0, 4, 8, 12].map(|at| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]));
        let header = Header { tag, rest: u64::from(low) | u64::from(high) << 32 };
        (header.check(number) == check).then_some(header)
    }

    fn check(self, number: u64) -> u32 {
        let mut hasher = Hasher::new();
        hasher.update(&number.to_le_bytes());
        hasher.update(&self.tag.to_le_bytes());
        hasher.update(&self.rest.to_le_bytes());
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_in_its_frame_alone() {
        let header = Header { tag: 7, rest: (3 << 32) + 5 };
        let bytes = header.write(9);
        assert_eq!(Header::read(bytes, 9), Some(header));
        assert_eq!(header.bytes(), MOST_IN_FRAME);
        assert_eq!(Header::read(bytes, 10), None);
        for at in 0..HEADER {
            let mut spoilt = bytes;
            spoilt[at] ^= 4;
            assert_eq!(Header::read(spoilt, 9), None);
        }
    }
}
