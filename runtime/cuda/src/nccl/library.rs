//! NCCL's shared library: its functions, and the errors that they report.

use super::super::error::Error;
use super::super::library::Library as Missing;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// A communicator of the library.
pub(super) type Handle = *mut c_void;

/// Outcome of a call, from `nccl.h`.
pub(super) type Status = c_int;
pub(super) const SUCCESS: Status = 0;
pub(super) const IN_PROGRESS: Status = 7;

/// Elements of a call, from `nccl.h`.
pub(super) type Elements = c_int;
pub(super) const BYTES: Elements = 1;
pub(super) const INTS: Elements = 2;
pub(super) const HALVES: Elements = 6;
pub(super) const FLOATS: Elements = 7;
pub(super) const BRAINS: Elements = 9;

/// Combinations, from `nccl.h`.
pub(super) const SUM: c_int = 0;
pub(super) const MAX: c_int = 2;

/// The first version with all that is called: communicators that do not block and can be finished.
const OLDEST: c_int = 21_800;

/// The name of a communicator, which its first member makes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UniqueId(pub [u8; 128]);

/// Options of a communicator, as version 2.18 has them; later versions read what is there.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cluster: c_int,
    least_blocks: c_int,
    most_blocks: c_int,
    network: *const c_char,
    shares_split: c_int,
}

impl Config {
    /// The settings of a communicator whose calls return at once, whatever the others do.
    pub(super) fn not_blocking() -> Config {
        Config {
            size: size_of::<Config>(),
            magic: 0xcafe_beef,
            version: OLDEST as c_uint,
            blocking: 0,
            // As `NCCL_CONFIG_UNDEF_INT`.
            cluster: c_int::MIN,
            least_blocks: c_int::MIN,
            most_blocks: c_int::MIN,
            network: std::ptr::null(),
            shares_split: c_int::MIN,
        }
    }
}

macro_rules! functions {
    ($($name:ident = $symbol:literal ($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions of the library.
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
            _library: Library,
        }

        impl Functions {
            fn of(library: Library) -> Result<Functions, libloading::Error> {
                // SAFETY: the types are those of `nccl.h`, and the library lives as long as they do.
                unsafe { Ok(Functions { $($name: *library.get(concat!($symbol, "\0").as_bytes())?,)* _library: library }) }
            }
        }
    };
}

functions! {
    version = "ncclGetVersion" (*mut c_int) -> Status;
    error_text = "ncclGetErrorString" (Status) -> *const c_char;
    last_error = "ncclGetLastError" (Handle) -> *const c_char;
    unique_id = "ncclGetUniqueId" (*mut UniqueId) -> Status;
    init = "ncclCommInitRankConfig" (*mut Handle, c_int, UniqueId, c_int, *mut Config) -> Status;
    async_error = "ncclCommGetAsyncError" (Handle, *mut Status) -> Status;
    finalize = "ncclCommFinalize" (Handle) -> Status;
    destroy = "ncclCommDestroy" (Handle) -> Status;
    abort = "ncclCommAbort" (Handle) -> Status;
    group_start = "ncclGroupStart" () -> Status;
    group_end = "ncclGroupEnd" () -> Status;
    all_reduce = "ncclAllReduce" (u64, u64, usize, Elements, c_int, Handle, *mut c_void) -> Status;
    reduce_scatter = "ncclReduceScatter" (u64, u64, usize, Elements, c_int, Handle, *mut c_void) -> Status;
    all_gather = "ncclAllGather" (u64, u64, usize, Elements, Handle, *mut c_void) -> Status;
    broadcast = "ncclBroadcast" (u64, u64, usize, Elements, c_int, Handle, *mut c_void) -> Status;
    send = "ncclSend" (u64, usize, Elements, c_int, Handle, *mut c_void) -> Status;
    receive = "ncclRecv" (u64, usize, Elements, c_int, Handle, *mut c_void) -> Status;
}

/// The names that are tried, first to last, wherever the system's loader looks for libraries.
pub fn file_names() -> Vec<String> {
    let names = if cfg!(windows) { ["nccl.dll", "nccl64_2.dll"] } else { ["libnccl.so.2", "libnccl.so"] };
    names.map(str::to_string).to_vec()
}

/// True if the library can be loaded.
pub fn is_there() -> bool {
    functions().is_ok()
}

/// The functions, loaded at the first call.
///
/// # Errors
/// There is no such library, or it is too old.
pub(super) fn functions() -> Result<&'static Functions, Error> {
    static LOADED: OnceLock<Result<Functions, Error>> = OnceLock::new();
    let load = || {
        // SAFETY: loading the library runs its initialisers, which have no conditions.
        let open = |name: &String| unsafe { Library::new(name) }.ok();
        let library = file_names().iter().find_map(open).ok_or_else(|| Error::Missing(vec![Missing::Nccl]))?;
        let old = |why: String| Error::Nccl { what: "loading the library", why };
        let functions = Functions::of(library).map_err(|why| old(why.to_string()))?;
        match number(&functions) {
            version if version < OLDEST => Err(old(format!("it is {}, and 2.18 is the oldest", text(version)))),
            _ => Ok(functions),
        }
    };
    LOADED.get_or_init(load).as_ref().map_err(Error::clone)
}

/// The version of the library: `2.28.3`.
///
/// # Errors
/// As of loading it.
pub fn version() -> Result<String, Error> {
    Ok(text(number(functions()?)))
}

fn number(functions: &Functions) -> c_int {
    let mut version = 0;
    // SAFETY: the pointer is to a live integer, which stays 0 if the call fails.
    unsafe { (functions.version)(&raw mut version) };
    version
}

fn text(version: c_int) -> String {
    format!("{}.{}.{}", version / 10_000, version % 10_000 / 100, version % 100)
}

impl Functions {
    /// A status as a result; a call that goes on has not failed.
    pub(super) fn tried(&self, what: &'static str, status: Status) -> Result<(), Error> {
        if matches!(status, SUCCESS | IN_PROGRESS) {
            return Ok(());
        }
        // SAFETY: both texts are the library's own, and end; no communicator need be given.
        let [why, last] = unsafe { [owned((self.error_text)(status)), owned((self.last_error)(std::ptr::null_mut()))] };
        let why = if last.is_empty() { why } else { format!("{why} ({last})") };
        Err(Error::Nccl { what, why })
    }
}

/// A text of the library.
///
/// # Safety
/// It is a text that ends, or null.
unsafe fn owned(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_string()
}
