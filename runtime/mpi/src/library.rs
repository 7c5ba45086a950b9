//! The calls of MPI, through the shim in C. All of them return at once, but for those that begin and end a run.

use std::ffi::{c_char, c_int, c_void};

unsafe extern "C" {
    fn shim_start(number: *mut c_int, count: *mut c_int) -> c_int;
    fn shim_finish() -> c_int;
    fn shim_host(name: *mut c_char, size: c_int) -> c_int;
    fn shim_message(code: c_int, message: *mut c_char, size: c_int);
    fn shim_all_gather(own: *const c_void, len: c_int, all: *mut c_void) -> c_int;
    fn shim_barrier() -> c_int;
    fn shim_request_size() -> c_int;
    fn shim_send(comm: c_int, bytes: *const c_void, len: c_int, to: c_int, tag: c_int, request: *mut c_void) -> c_int;
    fn shim_receive(
        comm: c_int,
        bytes: *mut c_void,
        len: c_int,
        from: c_int,
        tag: c_int,
        request: *mut c_void,
    ) -> c_int;
    fn shim_join(members: *const c_int, count: c_int) -> c_int;
    fn shim_sum(group: c_int, numbers: *mut f32, len: c_int, to: c_int, request: *mut c_void) -> c_int;
    fn shim_test(request: *mut c_void, done: *mut c_int, bytes: *mut c_int) -> c_int;
    fn shim_probe(comm: c_int, tag: c_int, from: *mut c_int, bytes: *mut c_int) -> c_int;
    fn shim_take(comm: c_int, bytes: *mut c_void, len: c_int, from: c_int, tag: c_int) -> c_int;
}

/// Bytes of a text that the library gives.
const TEXT: usize = 512;

/// A request of any implementation: a pointer or an integer.
type Request = usize;

/// The library, once it has started. One thread calls it at a time.
pub(crate) struct Library {
    pub(crate) number: usize,
    pub(crate) count: usize,
}

/// A communicator of all processes.
#[derive(Clone, Copy)]
pub(crate) enum Communicator {
    Messages,
    Notices,
}

/// Messages and sums under way.
#[derive(Default)]
pub(crate) struct Outstanding {
    requests: Vec<Pending>,
}

struct Pending {
    request: Request,
    ticket: usize,
    /// The bytes of a send or a sum.
    sent: Option<usize>,
}

/// The message of an error code; `Ok` for none.
fn check(what: &str, code: c_int) -> Result<(), String> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the shim writes a text that ends within its bytes.
    let message = text(|bytes, size| unsafe { shim_message(code, bytes, size) });
    Err(format!("MPI cannot {what}: {message}"))
}

/// A text that the shim writes.
fn text(write: impl FnOnce(*mut c_char, c_int)) -> String {
    let mut bytes = [0u8; TEXT];
    write(bytes.as_mut_ptr().cast::<c_char>(), TEXT as c_int);
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(TEXT);
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

impl Library {
    /// Starts the library, for calls from one thread at a time.
    ///
    /// # Errors
    /// It cannot be called so.
    pub(crate) fn start() -> Result<Library, String> {
        let (mut number, mut count) = (0, 0);
        // SAFETY: the first call of the library; the shim writes both numbers.
        let size = unsafe {
            check("start", shim_start(&mut number, &mut count))?;
            shim_request_size()
        };
        if size as usize > size_of::<Request>() {
            return Err(format!("requests of {size} bytes are not those of a known MPI"));
        }
        Ok(Library { number: number as usize, count: count as usize })
    }

    /// The name of this host.
    pub(crate) fn host(&self) -> Result<String, String> {
        let mut code = 0;
        // SAFETY: the shim writes a text that ends within its bytes.
        let name = text(|bytes, size| code = unsafe { shim_host(bytes, size) });
        check("name the host", code).map(|()| name)
    }

    /// The bytes of all processes, one after the other; each gives the same number of them.
    pub(crate) fn all_gather(&self, own: &[u8]) -> Result<Vec<u8>, String> {
        let mut all = vec![0u8; own.len() * self.count];
        let (from, to) = (own.as_ptr().cast::<c_void>(), all.as_mut_ptr().cast::<c_void>());
        // SAFETY: the bytes of each process have their place.
        check("gather", unsafe { shim_all_gather(from, own.len() as c_int, to) })?;
        Ok(all)
    }

    /// Joins processes, of which this is one, in the next group that makes sums. All of them call it, and wait for each other.
    pub(crate) fn join(&self, members: &[usize]) -> Result<(), String> {
        let members: Vec<c_int> = members.iter().map(|&member| member as c_int).collect();
        // SAFETY: the shim reads as many numbers as there are.
        check("join processes", unsafe { shim_join(members.as_ptr(), members.len() as c_int) })
    }

    /// Begins to add numbers in place, for all members of a group or for the one at place `to`.
    ///
    /// # Safety
    /// The numbers live, and nobody touches them, until the ticket comes back.
    pub(crate) unsafe fn sum(
        &self,
        under_way: &mut Outstanding,
        ticket: usize,
        group: usize,
        numbers: *mut [f32],
        to: Option<usize>,
    ) -> Result<(), String> {
        let mut request: Request = 0;
        let place = std::ptr::from_mut(&mut request).cast::<c_void>();
        let (len, to) = (numbers.len(), to.map_or(-1, |to| to as c_int));
        // SAFETY: by the caller's contract; a request fits its place.
        check("add", unsafe { shim_sum(group as c_int, numbers.cast::<f32>(), len as c_int, to, place) })?;
        under_way.requests.push(Pending { request, ticket, sent: Some(len * size_of::<f32>()) });
        Ok(())
    }

    /// Waits until all processes are here.
    pub(crate) fn barrier(&self) -> Result<(), String> {
        // SAFETY: the library has started.
        check("wait for all processes", unsafe { shim_barrier() })
    }

    /// Ends the library, together with all other processes.
    pub(crate) fn finish(&self) {
        // SAFETY: its last call. Nothing can be done about an error.
        unsafe { shim_finish() };
    }
}

impl Communicator {
    /// Begins to send bytes to a process with a tag.
    ///
    /// # Safety
    /// The bytes live, and nobody writes them, until the ticket comes back.
    pub(crate) unsafe fn send(
        self,
        under_way: &mut Outstanding,
        ticket: usize,
        (to, tag): (usize, u32),
        bytes: *const [u8],
    ) -> Result<(), String> {
        let mut request: Request = 0;
        let (len, from, place) =
            (bytes.len(), bytes.cast::<c_void>(), std::ptr::from_mut(&mut request).cast::<c_void>());
        // SAFETY: by the caller's contract; a request fits its place.
        let code = unsafe { shim_send(self as c_int, from, len as c_int, to as c_int, tag as c_int, place) };
        check("send", code)?;
        under_way.requests.push(Pending { request, ticket, sent: Some(len) });
        Ok(())
    }

    /// Begins to receive at most these bytes from a process with a tag.
    ///
    /// # Safety
    /// The bytes live, and nobody touches them, until the ticket comes back.
    pub(crate) unsafe fn receive(
        self,
        under_way: &mut Outstanding,
        ticket: usize,
        (from, tag): (usize, u32),
        bytes: *mut [u8],
    ) -> Result<(), String> {
        let mut request: Request = 0;
        let (len, to, place) = (bytes.len(), bytes.cast::<c_void>(), std::ptr::from_mut(&mut request).cast::<c_void>());
        // SAFETY: by the caller's contract; a request fits its place.
        let code = unsafe { shim_receive(self as c_int, to, len as c_int, from as c_int, tag as c_int, place) };
        check("receive", code)?;
        under_way.requests.push(Pending { request, ticket, sent: None });
        Ok(())
    }

    /// Takes a message with a tag that has come, from any process, if there is one.
    pub(crate) fn take(self, tag: u32) -> Result<Option<(usize, Vec<u8>)>, String> {
        let (mut from, mut len, tag) = (-1, 0, tag as c_int);
        // SAFETY: the shim writes both numbers.
        check("probe", unsafe { shim_probe(self as c_int, tag, &mut from, &mut len) })?;
        let Ok(sender) = usize::try_from(from) else { return Ok(None) };
        let mut bytes = vec![0u8; len as usize];
        let to = bytes.as_mut_ptr().cast::<c_void>();
        // SAFETY: the message has the number of bytes that the probe has found.
        check("receive", unsafe { shim_take(self as c_int, to, len, from, tag) })?;
        Ok(Some((sender, bytes)))
    }
}

impl Outstanding {
    /// Reports the tickets and bytes of messages that have gone or come.
    pub(crate) fn test(&mut self, mut report: impl FnMut(usize, usize)) -> Result<(), String> {
        let mut failure = Ok(());
        self.requests.retain_mut(|pending| {
            let (mut done, mut bytes) = (0, 0);
            let request = std::ptr::from_mut(&mut pending.request).cast::<c_void>();
            // SAFETY: the request was begun, and is not done.
            let code = unsafe { shim_test(request, &mut done, &mut bytes) };
            if let Err(why) = check("move a message", code) {
                failure = Err(why);
                return false;
            }
            if done != 0 {
                report(pending.ticket, pending.sent.unwrap_or(bytes as usize));
            }
            done == 0
        });
        failure
    }

    /// Waits until all messages have gone or come.
    pub(crate) fn wait(&mut self) -> Result<(), String> {
        while !self.requests.is_empty() {
            self.test(|_, _| ())?;
        }
        Ok(())
    }
}
