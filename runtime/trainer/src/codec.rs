//! Texts as tokens of a `tokenizer.json`.

#[cfg(feature = "tokenize")]
pub(crate) use tokenize::TextCodec;

#[cfg(not(feature = "tokenize"))]
pub(crate) use absent::TextCodec;

/// A build without the feature `tokenize`.
#[cfg(not(feature = "tokenize"))]
mod absent {
    use crate::error::Error;
    use ir::catalogue::Code;
    use std::path::Path;

    /// Tokens of a text; there are none.
    pub(crate) enum TextCodec {}

    impl TextCodec {
        /// Refuses tokenizers.
        pub(crate) fn open(_: &Path) -> Result<TextCodec, Error> {
            Err(Error::input(Code::BadOption, "this program was built without tokenizers")
                .help("build with --features tokenize, or leave out --tokenizer: tokens are bytes then"))
        }

        pub(crate) fn vocabulary(&self) -> u64 {
            match *self {}
        }

        pub(crate) fn id(&self, _: &str) -> Result<u32, Error> {
            match *self {}
        }

        pub(crate) fn ids(&self, _: &str) -> Result<Vec<u32>, Error> {
            match *self {}
        }

        pub(crate) fn continuation(&self, _: &[u32], _: &[u32]) -> Result<String, Error> {
            match *self {}
        }
    }
}
