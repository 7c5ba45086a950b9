//! The limit of the system on the size of files.

/// Makes a write beyond the file-size limit return an error; by default the signal would end the process.
pub(super) fn hear() {
    #[cfg(unix)]
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default());
}
