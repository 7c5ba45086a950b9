//! A connection with one other process. Nothing here blocks: what the system does not take or give now is tried at the next call.

use super::frame::{END, HEADER, Header, NOTICE};
use comm::wire::{Finished, MOST_BYTES, MOST_NOTICE};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};

/// The most bytes that one call moves each way, so that every connection has its turn.
const MOST_AT_ONCE: usize = 4 << 20;

/// Bytes read ahead, so that a short message takes one call of the system. Longer parts of messages go to their place at once.
const AHEAD: usize = 1 << 14;

/// One end of a connection.
pub(crate) struct Link {
    stream: TcpStream,
    /// The cause why nothing comes or goes any more; none while it is open.
    closed: Option<Broken>,
    /// True if the other process has ended as agreed.
    has_ended: bool,
    outgoing: Outgoing,
    incoming: Incoming,
}

/// The cause why a connection is of no use any more.
#[derive(Debug)]
pub(crate) enum Broken {
    Closed,
    Lost(io::Error),
    Unwritable,
    /// Bytes that have come are no frame of this protocol.
    Frames,
    OutOfOrder,
    LongNotice,
    LongMessage(u64),
    /// A message is longer than its place.
    Overfull {
        bytes: usize,
        room: usize,
    },
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Closed => f.write_str("its connection was closed"),
            Broken::Lost(why) => write!(f, "its connection is lost: {why}"),
            Broken::Unwritable => f.write_str("nothing can be written to its connection"),
            Broken::Frames => f.write_str("its frames are broken"),
            Broken::OutOfOrder => f.write_str("its frames are out of order"),
            Broken::LongNotice => f.write_str("its notice is too long"),
            Broken::LongMessage(bytes) => write!(f, "it sends a message of {bytes} bytes"),
            Broken::Overfull { bytes, room } => write!(f, "it sends {bytes} bytes where {room} are awaited"),
        }
    }
}

/// Messages and notices that are to go.
#[derive(Default)]
struct Outgoing {
    messages: VecDeque<Sent>,
    notices: VecDeque<(u32, Vec<u8>)>,
    frame: Option<Frame>,
    /// Frames that have begun.
    frames: u64,
}

/// A message that is sent, of its bytes those from `at` on.
struct Sent {
    ticket: usize,
    tag: u32,
    bytes: *const [u8],
    at: usize,
}

/// A frame on its way, and how much of it has gone.
struct Frame {
    header: [u8; HEADER],
    bytes: FrameBytes,
    gone: usize,
    /// The message that has gone with it.
    last_of: Option<Finished>,
}

enum FrameBytes {
    Notice(Vec<u8>),
    Part(*const [u8]),
}

/// Messages that come, and places for them.
struct Incoming {
    ahead: Box<[u8; AHEAD]>,
    /// The bytes ahead that are yet to be looked at.
    start: usize,
    end: usize,
    /// Frames that have come, and the bytes of the last one that are yet to come.
    frames: u64,
    left: usize,
    /// The notice whose frame comes, and the message of which frames come.
    notice: Option<Vec<u8>>,
    message: Option<Arriving>,
    awaited: BTreeMap<u32, VecDeque<Place>>,
    /// Messages that have come before they were awaited.
    early: BTreeMap<u32, VecDeque<Vec<u8>>>,
}

/// A message of which some bytes have come.
struct Arriving {
    tag: u32,
    total: usize,
    at: usize,
    into: Target,
}

enum Target {
    Place(Place),
    Early(Vec<u8>),
}

/// The place of a message that is awaited.
struct Place {
    ticket: usize,
    bytes: *mut [u8],
}

// SAFETY: the owners of the bytes leave them alone until the tickets come back; the thread that has the link alone touches them.
unsafe impl Send for Link {}

/// Everything that came while connections were looked at.
#[derive(Default)]
pub(crate) struct Landed {
    pub(crate) finished: Vec<Finished>,
    pub(crate) notices: Vec<Vec<u8>>,
}

impl Link {
    /// An end of a connection that is open.
    ///
    /// # Errors
    /// The system refuses the settings of the socket.
    pub(crate) fn new(stream: TcpStream) -> io::Result<Link> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let incoming = Incoming {
            ahead: Box::new([0; AHEAD]),
            start: 0,
            end: 0,
            frames: 0,
            left: 0,
            notice: None,
            message: None,
            awaited: BTreeMap::new(),
            early: BTreeMap::new(),
        };
        Ok(Link { stream, closed: None, has_ended: false, outgoing: Outgoing::default(), incoming })
    }

    /// Queues a message. The bytes live and do not change until its ticket comes back.
    pub(crate) fn send(&mut self, ticket: usize, tag: u32, bytes: *const [u8]) {
        self.outgoing.messages.push_back(Sent { ticket, tag, bytes, at: 0 });
    }

    /// Queues a notice, before all messages.
    pub(crate) fn notify(&mut self, notice: &[u8]) {
        self.outgoing.notices.push_back((NOTICE, notice.to_vec()));
    }

    /// Awaits a message, and returns whether it has come already. The bytes live and nobody touches them until the ticket comes back.
    ///
    /// # Errors
    /// It is longer than its place.
    pub(crate) fn receive(&mut self, ticket: usize, tag: u32, bytes: *mut [u8]) -> Result<Option<Finished>, Broken> {
        let (incoming, place) = (&mut self.incoming, Place { ticket, bytes });
        match incoming.early.get_mut(&tag).and_then(VecDeque::pop_front) {
            Some(early) => place.fill(&early).map(Some),
            None => {
                incoming.awaited.entry(tag).or_default().push_back(place);
                Ok(None)
            }
        }
    }

    /// The cause why nothing comes or goes any more, unless the other process has ended as agreed.
    pub(crate) fn failure(&self) -> Option<&Broken> {
        self.closed.as_ref().filter(|_| !self.has_ended)
    }

    /// Moves what can move. A connection that breaks is closed.
    pub(crate) fn pump(&mut self, landed: &mut Landed) {
        if self.closed.is_none()
            && let Err(why) = self.read(landed).and_then(|()| self.write(landed))
        {
            self.closed = Some(why);
        }
    }

    /// Queues the end, after which nothing goes.
    pub(crate) fn end(&mut self) {
        self.outgoing.notices.push_back((END, Vec::new()));
    }

    /// True if nothing is left to go, or nothing can.
    pub(crate) fn has_gone(&self) -> bool {
        let Outgoing { notices, frame, .. } = &self.outgoing;
        self.closed.is_some() || notices.is_empty() && frame.is_none()
    }

    /// Drops all messages, and what is left of the one that goes.
    pub(crate) fn drop_messages(&mut self) {
        self.outgoing.messages.clear();
    }

    /// Tells the other process that nothing more goes.
    pub(crate) fn shut(&self) {
        // A process that is gone needs not be told.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// True if the other process has closed its end.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    fn write(&mut self, landed: &mut Landed) -> Result<(), Broken> {
        let mut budget = MOST_AT_ONCE;
        while budget > 0 {
            let Some(frame) = self.outgoing.begun() else { return Ok(()) };
            let [header, bytes] = frame.rest();
            let count = match self.stream.write_vectored(&[IoSlice::new(header), IoSlice::new(bytes)]) {
                Ok(0) => return Err(Broken::Unwritable),
                Ok(count) => count,
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == ErrorKind::Interrupted => continue,
                Err(why) => return Err(Broken::Lost(why)),
            };
            frame.gone += count;
            budget = budget.saturating_sub(count);
            if frame.rest().iter().all(|rest| rest.is_empty()) {
                landed.finished.extend(frame.last_of);
                self.outgoing.frame = None;
            }
        }
        Ok(())
    }

    fn read(&mut self, landed: &mut Landed) -> Result<(), Broken> {
        let mut budget = MOST_AT_ONCE;
        while budget > 0 {
            let incoming = &mut self.incoming;
            while incoming.start < incoming.end {
                if incoming.left == 0 && !incoming.begin(landed, &mut self.has_ended)? {
                    break;
                }
                incoming.take_ahead(landed)?;
            }
            let is_direct = incoming.left >= AHEAD;
            let count = match self.stream.read(incoming.room()) {
                Ok(0) => return Err(Broken::Closed),
                Ok(count) => count,
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == ErrorKind::Interrupted => continue,
                Err(why) => return Err(Broken::Lost(why)),
            };
            budget = budget.saturating_sub(count);
            if is_direct {
                incoming.came(count, landed)?;
            } else {
                incoming.end += count;
            }
        }
        Ok(())
    }
}

impl Outgoing {
    /// The frame that goes next; none if there is nothing to send.
    fn begun(&mut self) -> Option<&mut Frame> {
        if self.frame.is_none() {
            let (header, bytes, last_of) = self.next()?;
            let header = header.write(self.frames);
            self.frames += 1;
            self.frame = Some(Frame { header, bytes, gone: 0, last_of });
        }
        self.frame.as_mut()
    }

    fn next(&mut self) -> Option<(Header, FrameBytes, Option<Finished>)> {
        if let Some((tag, notice)) = self.notices.pop_front() {
            return Some((Header { tag, rest: notice.len() as u64 }, FrameBytes::Notice(notice), None));
        }
        let message = self.messages.front_mut()?;
        let (ticket, total) = (message.ticket, message.bytes.len());
        let header = Header { tag: message.tag, rest: (total - message.at) as u64 };
        // SAFETY: the part is within the bytes.
        let first = unsafe { message.bytes.cast::<u8>().add(message.at) };
        let part = std::ptr::slice_from_raw_parts(first, header.bytes());
        message.at += header.bytes();
        let is_last = message.at == total;
        if is_last {
            self.messages.pop_front();
        }
        Some((header, FrameBytes::Part(part), is_last.then_some(Finished { ticket, bytes: total })))
    }
}

impl Frame {
    /// The bytes of the header and of the message that have yet to go.
    fn rest(&self) -> [&[u8]; 2] {
        let bytes = match &self.bytes {
            FrameBytes::Notice(notice) => notice.as_slice(),
            // SAFETY: nobody writes them until the ticket comes back, and they live until then.
            FrameBytes::Part(part) => unsafe { &**part },
        };
        [&self.header[self.gone.min(HEADER)..], &bytes[self.gone.saturating_sub(HEADER)..]]
    }
}

impl Incoming {
    /// Begins a frame, if its header has come; of a message also its arrival.
    fn begin(&mut self, landed: &mut Landed, has_ended: &mut bool) -> Result<bool, Broken> {
        let Some(header) = self.ahead[self.start..self.end].first_chunk::<HEADER>() else { return Ok(false) };
        let header = Header::read(*header, self.frames).ok_or(Broken::Frames)?;
        self.start += HEADER;
        self.frames += 1;
        self.left = header.bytes();
        match header.tag {
            END => *has_ended = true,
            NOTICE if header.rest > MOST_NOTICE as u64 => return Err(Broken::LongNotice),
            NOTICE => self.notice = Some(Vec::with_capacity(self.left)),
            tag => self.begin_message(tag, header.rest)?,
        }
        if self.left == 0 {
            self.came(0, landed)?;
        }
        Ok(true)
    }

    fn begin_message(&mut self, tag: u32, rest: u64) -> Result<(), Broken> {
        if let Some(message) = &self.message {
            let follows = (message.tag, (message.total - message.at) as u64) == (tag, rest);
            return if follows { Ok(()) } else { Err(Broken::OutOfOrder) };
        }
        if rest > MOST_BYTES as u64 {
            return Err(Broken::LongMessage(rest));
        }
        let total = rest as usize;
        let into = match self.awaited.get_mut(&tag).and_then(VecDeque::pop_front) {
            Some(place) => Target::Place(place.holds(total)?),
            None => Target::Early(vec![0; total]),
        };
        self.message = Some(Arriving { tag, total, at: 0, into });
        Ok(())
    }

    /// The place of the next bytes: that of a message, if many of it are to come, else the bytes ahead.
    fn room(&mut self) -> &mut [u8] {
        let Incoming { ahead, start, end, left, message, notice, .. } = self;
        if let (true, None, Some(message)) = (*left >= AHEAD && start == end, notice, message) {
            let (at, left) = (message.at, *left);
            return &mut message.bytes()[at..at + left];
        }
        ahead.copy_within(*start..*end, 0);
        (*start, *end) = (0, *end - *start);
        &mut ahead[*end..]
    }

    /// Moves bytes ahead to where they belong.
    fn take_ahead(&mut self, landed: &mut Landed) -> Result<(), Broken> {
        let count = self.left.min(self.end - self.start);
        if count == 0 {
            return Ok(());
        }
        let bytes = &self.ahead[self.start..self.start + count];
        match (&mut self.notice, &mut self.message) {
            (Some(notice), _) => notice.extend(bytes),
            (None, Some(message)) => {
                let at = message.at;
                message.bytes()[at..at + count].copy_from_slice(bytes);
            }
            (None, None) => return Err(Broken::Frames),
        }
        self.start += count;
        self.came(count, landed)
    }

    /// Notes that bytes of the frame have come, and ends what is complete with them.
    fn came(&mut self, count: usize, landed: &mut Landed) -> Result<(), Broken> {
        self.left -= count;
        if self.notice.is_some() {
            if self.left == 0 {
                landed.notices.extend(self.notice.take());
            }
            return Ok(());
        }
        if let Some(message) = &mut self.message {
            message.at += count;
        }
        let Some(message) = self.message.take_if(|message| message.at == message.total) else { return Ok(()) };
        match message.into {
            Target::Place(Place { ticket, .. }) => landed.finished.push(Finished { ticket, bytes: message.total }),
            Target::Early(bytes) => match self.awaited.get_mut(&message.tag).and_then(VecDeque::pop_front) {
                Some(place) => landed.finished.push(place.fill(&bytes)?),
                None => self.early.entry(message.tag).or_default().push_back(bytes),
            },
        }
        Ok(())
    }
}

impl Arriving {
    fn bytes(&mut self) -> &mut [u8] {
        match &mut self.into {
            // SAFETY: the receiver leaves its bytes alone until its ticket comes back.
            Target::Place(place) => unsafe { &mut *place.bytes },
            Target::Early(bytes) => bytes,
        }
    }
}

impl Place {
    /// This place, if it has room for the bytes of a message.
    fn holds(self, bytes: usize) -> Result<Place, Broken> {
        match self.bytes.len() {
            room if room < bytes => Err(Broken::Overfull { bytes, room }),
            _ => Ok(self),
        }
    }

    fn fill(self, bytes: &[u8]) -> Result<Finished, Broken> {
        let Place { ticket, bytes: into } = self.holds(bytes.len())?;
        // SAFETY: the receiver leaves its bytes alone until its ticket comes back; the place has room for them.
        unsafe { (&mut *into)[..bytes.len()].copy_from_slice(bytes) };
        Ok(Finished { ticket, bytes: bytes.len() })
    }
}
