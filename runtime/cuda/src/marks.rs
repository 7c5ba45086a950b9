//! Times of points in the streams of a device: events that are recorded during a step and read at its end.

use super::device::Device;
use super::error::Error;
use super::stream::{Event, Stream};
use device::backend::Mark;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The point from which the times of a step are counted, on the device and on the host.
pub(super) struct Clock {
    stream: Stream,
    event: Event,
    began: Instant,
}

/// The marks of a rank, in the streams of all its threads and exchanges. Each step uses the same events again.
pub(super) struct Marks {
    device: Arc<Device>,
    is_on: AtomicBool,
    pool: Mutex<Pool>,
}

/// Events, of which the first few mark something.
#[derive(Default)]
struct Pool {
    events: Vec<Event>,
    used: usize,
}

impl Device {
    /// Starts the clock of a step, while the device is idle. All of its streams are timed by the same clock.
    ///
    /// # Errors
    /// The driver failed.
    pub fn start_clock(self: &Arc<Device>) -> Result<Instant, Error> {
        let mut clock = self.clock().lock().unwrap_or_else(PoisonError::into_inner);
        let (stream, event) = match clock.take() {
            Some(Clock { stream, event, .. }) => (stream, event),
            None => (Stream::new(self)?, Event::timed(self)?),
        };
        let began = Instant::now();
        stream.record(&event)?;
        event.finish()?;
        *clock = Some(Clock { stream, event, began });
        Ok(began)
    }
}

impl Marks {
    /// No marks.
    pub(super) fn new(device: &Arc<Device>) -> Marks {
        Marks { device: device.clone(), is_on: AtomicBool::new(false), pool: Mutex::default() }
    }

    /// Says whether the coming step is timed.
    pub(super) fn set_on(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Marks the point behind all that a stream has been given, if the step is timed.
    ///
    /// # Errors
    /// The driver failed.
    pub(super) fn mark(&self, stream: &Stream) -> Result<Option<Mark>, Error> {
        if !self.is_on.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.events.len() == pool.used {
            pool.events.push(Event::timed(&self.device)?);
        }
        stream.record(&pool.events[pool.used])?;
        pool.used += 1;
        Ok(Some(Mark::Device(pool.used - 1)))
    }

    /// The times of all marks, by their numbers, when what is before them is done; then there are none.
    ///
    /// # Errors
    /// Something that a stream did failed.
    pub(super) fn take_times(&self) -> Result<Vec<Instant>, Error> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let used = std::mem::take(&mut pool.used);
        let clock = self.device.clock().lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Clock { event: origin, began, .. }) = &*clock else { return Ok(Vec::new()) };
        let time = |event: &Event| Ok(*began + Duration::from_secs_f64(origin.seconds_to(event)?.max(0.0)));
        pool.events[..used].iter().map(time).collect()
    }
}
