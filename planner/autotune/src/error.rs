//! Errors of plans and of their explanations.

use compiler::error::Error as OpenError;
use compiler::parallel::ParallelError;
use compiler::request_error::RequestError;
use ir::catalogue::Code;
use ir::diag::Coded;
use scheduler::costs::CostsError;

/// Why a request has no plan, or a plan no explanation.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A file or model cannot be opened, the compiler refuses the plan, or the request was cancelled.
    #[error("{}", .0.message())]
    Open(#[from] OpenError),
    /// The request itself is wrong.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A configuration has no estimate.
    #[error(transparent)]
    Estimate(#[from] estimator::Error),
    /// The timeline of a plan cannot be simulated.
    #[error(transparent)]
    Timeline(#[from] view::report::Error),
    /// The costs of a timeline are wrong.
    #[error(transparent)]
    TimelineCosts(#[from] CostsError),
    /// The upper limit on devices is below the lower one.
    #[error("--max-gpus {max_gpus} is less than --gpus {gpus}")]
    MaxGpus {
        /// Upper limit.
        max_gpus: u64,
        /// Lower limit.
        gpus: u64,
    },
    /// The request is for zero configurations.
    #[error("`--top` is 0")]
    NoTop,
    /// The number of training tokens is out of range.
    #[error("`--tokens {tokens:e}` is out of range")]
    Tokens {
        /// Their number.
        tokens: f64,
    },
    /// The price of a device's hour is out of range.
    #[error("`--price {price:e}` is out of range")]
    Price {
        /// The price.
        price: f64,
    },
    /// The share by which a simpler configuration may be slower is out of range.
    #[error("`--tie` is {tie}, not a share from 0 up to 1")]
    Tie {
        /// The share.
        tie: f64,
    },
    /// No configuration of the request exists.
    #[error("no configuration of {gpus} devices serves {model}{} and a global batch of {global_batch}{}", with(.pin), since(.why))]
    NoneServes {
        /// Number of devices, or its range.
        gpus: String,
        /// Name of the model.
        model: String,
        /// Pins.
        pin: String,
        /// Sequences per step.
        global_batch: u64,
        /// Error of a configuration of the pins alone, as text.
        why: Option<String>,
    },
    /// No configuration fits into memory.
    #[error("no configuration fits{}", least(.needs, .is_least))]
    NothingFits {
        /// Memory of the smallest configuration that is known, as text.
        needs: Option<String>,
        /// True if it is proved to be the smallest.
        is_least: bool,
        /// The cheapest change after which a configuration fits.
        fix: Option<String>,
    },
    /// The deadline came before it was known whether any configuration fits.
    #[error("not known yet whether any configuration fits: {predicted} predicted{}", smallest(.needs))]
    NotFinished {
        /// Number of predicted configurations, as text.
        predicted: String,
        /// Memory of the smallest configuration that is known, as text.
        needs: Option<String>,
    },
    /// No configuration fits, and the smallest is not known.
    #[error("no configuration fits, and the smallest is not known")]
    SmallestUnknown,
    /// The deadline came before any configuration was found.
    #[error("no configuration was found before the deadline")]
    NoneFound,
    /// A file is not a plan.
    #[error("{place} is not a plan: {why}")]
    NotAPlan {
        /// Its path.
        place: String,
        /// The reason.
        why: NotAPlan,
    },
    /// A plan of another version.
    #[error("{place} has the schema {schema}; this version reads {read}")]
    PlanVersion {
        /// Path of the file.
        place: String,
        /// Its schema.
        schema: String,
        /// The schema that this version reads.
        read: &'static str,
        /// The version that wrote it.
        version: String,
    },
}

/// Reason why a file is not a plan.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NotAPlan {
    /// It is not JSON of this form, or its values are out of range.
    #[error("{0}")]
    Content(String),
    /// It is another kind of JSON.
    #[error("it lacks `\"schema\": \"meshwright.plan/2\"`")]
    NoSchema,
    /// It is the result of a search in which nothing fits.
    #[error("it states that nothing fits")]
    Infeasible,
    /// It is the result of a search that found nothing before its deadline.
    #[error("its search found none before the deadline")]
    Unknown,
}

fn with(pin: &str) -> String {
    if pin.is_empty() { String::new() } else { format!(" with the pins {pin}") }
}

fn since(why: &Option<String>) -> String {
    why.as_ref().map_or_else(String::new, |why| format!(": {why}"))
}

fn least(needs: &Option<String>, is_least: &bool) -> String {
    let which = if *is_least { "the smallest" } else { "the smallest of those evaluated" };
    needs.as_ref().map_or_else(String::new, |needs| format!("; {which} needs {needs}"))
}

fn smallest(needs: &Option<String>) -> String {
    needs.as_ref().map_or_else(String::new, |needs| format!(" (the smallest needs {needs})"))
}

/// Fix of a drawing without a configuration to draw.
const NOTHING_TO_SHOW: &str = "see --format table; a longer --deadline finds the smallest configuration";

impl Coded for Error {
    fn code(&self) -> Option<Code> {
        match self {
            Error::Open(error) => error.code(),
            Error::Request(error) => error.code(),
            Error::Estimate(error) => error.code(),
            Error::Timeline(error) => error.code(),
            Error::TimelineCosts(error) => error.code(),
            Error::MaxGpus { .. } | Error::NoTop | Error::Tokens { .. } | Error::Price { .. } | Error::Tie { .. } => {
                Some(Code::BadOption)
            }
            Error::NoneServes { .. } => Some(Code::NoLayout),
            Error::NothingFits { .. } | Error::SmallestUnknown => Some(Code::NothingFits),
            Error::NotFinished { .. } | Error::NoneFound => Some(Code::NotFinished),
            Error::NotAPlan { .. } => Some(Code::NoPlan),
            Error::PlanVersion { .. } => Some(Code::PlanVersion),
        }
    }

    fn help(&self) -> Option<String> {
        let help = match self {
            Error::Open(error) => return error.fix(),
            Error::Request(error) => return error.help(),
            Error::Estimate(error) => return error.help(),
            Error::Timeline(error) => return error.help(),
            Error::TimelineCosts(error) => return error.help(),
            Error::MaxGpus { .. } => "--max-gpus is the upper limit on devices",
            Error::NoTop => "--top is the number of configurations to show, including the best",
            Error::Tokens { .. } => "--tokens must be above 0, and at most 1e20",
            Error::Price { .. } => "--price is that of an hour of one device: from 0 to 1e9, in any unit",
            Error::Tie { .. } => "--tie 0.02 prefers a simpler configuration that is at most 2 % slower",
            Error::NoneServes { .. } => {
                "dp x tp x cp x pp must equal the number of devices, dp x mbs must divide the batch, tp the heads, ep the \
                 experts: change --gpus, --global-batch or --pin"
            }
            Error::NothingFits { fix: Some(fix), .. } => return Some(format!("the cheapest fix: {fix}")),
            Error::NothingFits { .. } => "use more devices (--gpus), fewer pins, or a smaller batch or sequence",
            Error::NotFinished { .. } => "a longer --deadline, or none, finishes the search; --pin narrows it",
            Error::SmallestUnknown | Error::NoneFound => NOTHING_TO_SHOW,
            Error::NotAPlan { why: NotAPlan::Infeasible, .. } => "plan again with one of its `relaxations`",
            Error::NotAPlan { why: NotAPlan::Unknown, .. } => "plan with a longer --deadline",
            Error::NotAPlan { .. } => "meshwright plan MODEL .. --format json -o FILE writes one",
            Error::PlanVersion { version, .. } => {
                return Some(format!("plan again, or read it with meshwright {version}"));
            }
        };
        Some(help.to_string())
    }
}

impl From<ParallelError> for Error {
    fn from(error: ParallelError) -> Error {
        Error::Request(error.into())
    }
}

impl From<Error> for OpenError {
    fn from(error: Error) -> OpenError {
        match error {
            Error::Open(error) => error,
            Error::Request(error) => error.into(),
            Error::Estimate(error) => error.into(),
            error @ (Error::NotFinished { .. } | Error::NoneFound) => {
                OpenError::NotFinished { message: error.to_string(), help: error.help().unwrap_or_default() }
            }
            error => OpenError::of(error),
        }
    }
}
