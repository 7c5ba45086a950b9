//! A GPU: its context, its properties, and the kernels compiled for it.

use super::error::{Error, Tried, status};
use super::library::Library;
use super::marks::Clock;
use super::matmul::AlgorithmKey;
use super::nvrtc;
use super::peaks::Peaks;
use cudarc::cublaslt::sys::cublasLtMatmulAlgo_t;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use cudarc::driver::{CudaContext, CudaFunction, CudaModule};
use cudarc::nvrtc::Ptx;
use serde::Serialize;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

/// A GPU in use by this process.
pub struct Device {
    context: Arc<CudaContext>,
    properties: Properties,
    /// Compiled kernels, by source and whether products and sums contract.
    modules: Mutex<HashMap<(String, bool), Arc<CudaModule>>>,
    choices: Choices,
    clock: Mutex<Option<Clock>>,
}

/// The algorithms of products that have been timed.
type Choices = Mutex<HashMap<AlgorithmKey, cublasLtMatmulAlgo_t>>;

/// Properties of a GPU, and the versions of its driver and libraries.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Properties {
    /// The vendor's name.
    pub name: String,
    /// The compute capability.
    pub capability: (u32, u32),
    /// Bytes of memory.
    pub memory_bytes: usize,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Its peak rates.
    pub peaks: Peaks,
    /// The CUDA version that the driver supports, `13.2`.
    pub driver: String,
    /// NVRTC's version.
    pub nvrtc: String,
    /// cuBLASLt's version.
    pub cublaslt: String,
}

impl Device {
    /// The device of a number, from 0, with all libraries loaded.
    ///
    /// # Errors
    /// A library is not there, or the driver shows no such device.
    pub fn open(ordinal: usize) -> Result<Arc<Device>, Error> {
        let missing: Vec<Library> = Library::ALL.into_iter().filter(|library| !library.is_there()).collect();
        if !missing.is_empty() {
            return Err(Error::Missing(missing));
        }
        let count = CudaContext::device_count().map(|count| count as usize).map_err(status);
        if !matches!(count, Ok(count) if ordinal < count) {
            return Err(Error::NoDevice { ordinal, count });
        }
        let context = CudaContext::new(ordinal).tried("opening the device")?;
        // SAFETY: no memory is taken through `cudarc`'s slices, which alone are tracked; streams are ordered by our events.
        unsafe { context.disable_event_tracking() };
        let properties = properties(&context)?;
        let (modules, choices, clock) = (Mutex::default(), Choices::default(), Mutex::default());
        Ok(Arc::new(Device { context, properties, modules, choices, clock }))
    }

    /// The properties of the device.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The number that no other GPU has.
    ///
    /// # Errors
    /// The driver failed.
    pub(super) fn identity(&self) -> Result<[u8; 16], Error> {
        let uuid = self.context.uuid().tried("asking for the device's identity")?;
        Ok(uuid.bytes.map(|byte| byte as u8))
    }

    /// Bytes of memory that are free, and in all.
    ///
    /// # Errors
    /// The driver failed.
    pub fn memory(&self) -> Result<(usize, usize), Error> {
        self.context.mem_get_info().tried("asking for free memory")
    }

    /// Waits until all that the device was given is done.
    ///
    /// # Errors
    /// Something of it failed. After an error in a kernel every call fails.
    pub fn finish(&self) -> Result<(), Error> {
        self.context.synchronize().tried("finishing the work of a device")
    }

    pub(super) fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    pub(super) fn choices(&self) -> &Choices {
        &self.choices
    }

    /// The clock of the step that is timed; none before the first.
    pub(super) fn clock(&self) -> &Mutex<Option<Clock>> {
        &self.clock
    }

    /// Makes this device the one that the calling thread talks to.
    pub(super) fn bind(&self) -> Result<(), Error> {
        self.context.bind_to_thread().tried("binding the device to a thread")
    }

    /// The kernel of a name in a CUDA C source, compiled for this device once and cached. If it `contracts`, a product and a sum may
    /// round once.
    ///
    /// # Errors
    /// It does not compile, or cannot be loaded.
    pub(super) fn kernel(&self, source: &str, name: &str, contracts: bool) -> Result<CudaFunction, Error> {
        self.module(source, contracts)?.load_function(name).tried("finding a kernel by its name")
    }

    fn module(&self, source: &str, contracts: bool) -> Result<Arc<CudaModule>, Error> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        match modules.entry((source.to_string(), contracts)) {
            Entry::Occupied(module) => Ok(module.get().clone()),
            Entry::Vacant(place) => {
                let (major, minor) = self.properties.capability;
                let code = nvrtc::compile(source, &format!("sm_{major}{minor}"), contracts)?;
                let module = self.context.load_module(Ptx::from_binary(code.cubin)).tried("loading a kernel")?;
                Ok(place.insert(module).clone())
            }
        }
    }
}

fn properties(context: &CudaContext) -> Result<Properties, Error> {
    let number = |attribute| {
        let value = context.attribute(attribute).tried("asking for an attribute of the device")?;
        Ok::<u32, Error>(u32::try_from(value).unwrap_or(0))
    };
    let capability = (
        number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    );
    let multiprocessors = number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    // Both clocks are given in kHz, the bus in bits. Memory moves data on both edges of its clock. A device that tells no
    // clock has no peaks.
    let rate = |attribute| f64::from(number(attribute).unwrap_or(0));
    let clock = 1e3 * rate(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    let memory_clock = 1e3 * rate(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
    let bus = rate(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
    let mut driver = 0;
    // SAFETY: the library is loaded, and the pointer is to a live integer.
    unsafe { sys::cuDriverGetVersion(&raw mut driver) }.result().tried("asking for the driver's version")?;
    // SAFETY: the library is loaded; the function takes nothing.
    let cublaslt = unsafe { cudarc::cublaslt::sys::cublasLtGetVersion() };
    Ok(Properties {
        name: context.name().tried("asking for the device's name")?,
        capability,
        memory_bytes: context.total_mem().tried("asking for the device's memory")?,
        multiprocessors,
        peaks: Peaks::of(capability, f64::from(multiprocessors) * clock, 2.0 * memory_clock * bus / 8.0),
        driver: format!("{}.{}", driver / 1000, driver % 1000 / 10),
        nvrtc: nvrtc::version(),
        cublaslt: format!("{}.{}.{}", cublaslt / 10000, cublaslt % 10000 / 100, cublaslt % 100),
    })
}
