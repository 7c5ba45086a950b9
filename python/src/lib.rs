//! The native part of the Python package: command lines in, their answers out. What they mean for Python is in the package's own files.
//!
//! Functions release Python's lock. An interrupt ends the wait for an answer; the thread that computes the answer goes on to its end.

use meshwright::{Error, Estimator, autotune, cli, exporting, json, launch, placements};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};
use pyo3::{BoundObject, IntoPyObject, ffi};
use std::ffi::{CStr, OsString};
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// The time between two looks for an interrupt.
const PAUSE: Duration = Duration::from_millis(50);

/// Bytes of a thread's stack: those of a main thread.
const STACK: usize = 8 << 20;

/// An error: its code, its message in one line, and the whole text.
type Told = (Option<String>, String, String);

/// The module as Python knows it before it has functions.
struct Definition(std::cell::UnsafeCell<ffi::PyModuleDef>);

// SAFETY: Python alone writes to it, with its lock held.
unsafe impl Sync for Definition {}

static DEFINITION: Definition = Definition(std::cell::UnsafeCell::new(ffi::PyModuleDef {
    m_base: ffi::PyModuleDef_HEAD_INIT,
    m_name: c"_native".as_ptr(),
    m_doc: c"Command lines and their answers.".as_ptr(),
    m_size: -1,
    m_methods: std::ptr::null_mut(),
    m_slots: std::ptr::null_mut(),
    m_traverse: None,
    m_clear: None,
    m_free: None,
}));

/// Makes the module; Python calls it on import.
///
/// # Safety
/// The caller has Python's lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PyInit__native() -> *mut ffi::PyObject {
    Python::attach(|py| {
        // SAFETY: the definition is static, and the lock is held.
        let made = unsafe { ffi::PyModule_Create2(DEFINITION.0.get(), ffi::PYTHON_API_VERSION) };
        // SAFETY: the result is a new reference, or null with an exception.
        let module = unsafe { Bound::from_owned_ptr_or_err(py, made) };
        match module.and_then(|module| filled(&module).map(|()| module)) {
            Ok(module) => module.into_ptr(),
            Err(error) => {
                error.restore(py);
                std::ptr::null_mut()
            }
        }
    })
}

/// Adds the functions.
fn filled(module: &Bound<'_, PyAny>) -> PyResult<()> {
    module.setattr("__version__", env!("CARGO_PKG_VERSION"))?;
    add(module, c"reply", |py, args| reply(py, args.extract::<(Vec<OsString>,)>()?.0))?;
    add(module, c"placements_of", |py, args| placements_of(py, args.extract::<(PathBuf,)>()?.0))?;
    add(module, c"schedule_of", |py, args| schedule_of(py, args.extract::<(PathBuf,)>()?.0))?;
    add(module, c"command", |py, args| {
        let (words, program) = args.extract::<(Vec<OsString>, Vec<OsString>)>()?;
        launch::started_as(program);
        Ok(py.detach(|| cli::run(words)))
    })
}

/// Adds a function of positional arguments.
fn add<R>(
    module: &Bound<'_, PyAny>,
    name: &'static CStr,
    function: fn(Python<'_>, &Bound<'_, PyTuple>) -> PyResult<R>,
) -> PyResult<()>
where
    R: for<'py> IntoPyObject<'py> + 'static,
{
    let call = move |args: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| -> PyResult<Py<PyAny>> {
        let answer = function(args.py(), args)?;
        answer.into_pyobject(args.py()).map(|answer| answer.into_any().unbind()).map_err(Into::into)
    };
    module.setattr(&*name.to_string_lossy(), PyCFunction::new_closure(module.py(), Some(name), None, call)?)
}

/// The answer to a command line: its text, its notes, the exit status, and the error.
fn reply(py: Python<'_>, args: Vec<OsString>) -> PyResult<(String, Vec<String>, u8, Option<Told>)> {
    let reply = interruptible(py, move || cli::reply(args))?;
    Ok((reply.text, reply.notes, reply.status, reply.error.as_ref().map(told)))
}

/// The shards of the weights of a plan file, as JSON; or an error.
fn placements_of(py: Python<'_>, path: PathBuf) -> PyResult<(String, Option<Told>)> {
    let found: Result<String, Error> = interruptible(py, move || {
        let plan = autotune::explain::read_plan(&path)?;
        json(&placements::placements(&plan.chosen)?)
    })?;
    Ok(found.map_or_else(|error| (String::new(), Some(told(&error))), |text| (text, None)))
}

/// The pipeline of a plan file, as JSON: the report of its schedule, and the costs of its stages; or an error.
fn schedule_of(py: Python<'_>, path: PathBuf) -> PyResult<(String, String, Option<Told>)> {
    let found: Result<(String, String), Error> = interruptible(py, move || {
        let plan = autotune::explain::read_plan(&path)?;
        let (request, report, _) = exporting::schedule(&Estimator::new(), &plan.chosen)?;
        Ok((json(&report)?, json(&request.costs)?))
    })?;
    Ok(match found {
        Ok((report, costs)) => (report, costs, None),
        Err(error) => (String::new(), String::new(), Some(told(&error))),
    })
}

/// Does work that an interrupt of Python need not wait for.
fn interruptible<T: Send + 'static>(py: Python<'_>, work: impl FnOnce() -> T + Send + 'static) -> PyResult<T> {
    let (done, mut answer) = mpsc::channel();
    // Nobody waits for the answer any more after an interrupt.
    let run = move || drop(done.send(work()));
    thread::Builder::new().stack_size(STACK).spawn(run).map_err(|why| PyRuntimeError::new_err(why.to_string()))?;
    loop {
        let waited = &mut answer;
        match py.detach(move || waited.recv_timeout(PAUSE)) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the call has ended without an answer"));
            }
        }
    }
}

fn told(error: &Error) -> Told {
    (error.code().map(|code| code.to_string()), error.message(), error.to_string())
}
