//! Reasons why a program does not load on a rank.

/// The reason why a program does not load on a rank: it is broken, or the backend cannot run it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says what its fields are")]
pub enum LoadError {
    // Ranks and classes.
    #[error("no class has pipeline rank {stage}")]
    NoClass { stage: u64 },
    #[error("there is no pipeline rank {stage}")]
    NoStage { stage: u64 },
    #[error("a peer is no pipeline rank")]
    PeerNoStage,
    #[error("a rank takes part in a transfer that does not list it")]
    Unlisted,
    #[error("who shares a parameter holds it not")]
    SharerLacks,
    // Places.
    #[error("the program does not say where its tensors lie: the pass `memory` has not run")]
    NoArena,
    #[error("instruction {instr} does not say where")]
    NotStated { instr: usize },
    #[error("a model-state tensor has no place")]
    NoResident,
    #[error("the rank does not hold `{name}`")]
    NotHeld { name: String },
    #[error("`{name}` has two shardings on one rank")]
    TwoShardings { name: String },
    #[error("`{name}` has two places")]
    TwoPlaces { name: String },
    #[error("body @{body} has no frame")]
    NoFrame { body: String },
    #[error("%{value} has no place")]
    Unplaced { value: String },
    // Registers.
    #[error("%{reg} holds nothing")]
    Empty { reg: String },
    #[error("%{reg} holds no bundle")]
    NoBundle { reg: String },
    #[error("%{reg} holds no bundle of host memory")]
    NoHostBundle { reg: String },
    #[error("%{reg} is a bundle, not a tensor")]
    Bundle { reg: String },
    // Starts and waits.
    #[error("nothing waits for %t{token}")]
    Unawaited { token: usize },
    #[error("waits for nothing")]
    WaitForNothing,
    #[error("{0} has no operand")]
    NoOperand(&'static str),
    #[error("{0} has no result")]
    NoResult(&'static str),
    #[error("an offloaded bundle is not on the device")]
    OffloadedElsewhere,
    #[error("states are stored that are not on the device")]
    StatesElsewhere,
    // Bodies.
    #[error("starts what it does not wait for")]
    NeverAwaited,
    #[error("body @{body} starts what it does not wait for")]
    BodyNeverWaits { body: String },
    #[error("`{op}` has no kernel")]
    NoKernel { op: String },
    #[error("`{op}` has several results; `+=` has one")]
    SeveralSums { op: String },
    #[error("the result of `{op}` has another sharding than its type")]
    ResultSharding { op: String },
    #[error("`{op}` has not one result for each operand")]
    ResultCount { op: String },
    #[error("`{op}`: {why}")]
    Op { op: String, why: String },
    #[error("a group: {why}")]
    Group { why: String },
    // Runs of bodies.
    #[error("is no run")]
    NoRun,
    #[error("its results are not those of the body")]
    OtherResults,
    #[error("has more arguments than the body")]
    MoreArguments,
    #[error("%{value} is not given")]
    NotGiven { value: String },
    #[error("no bundle has %{value}")]
    NotSaved { value: String },
    #[error("nothing gives the scalar %{value}")]
    NoScalar { value: String },
    #[error("it adds to what is no gradient of its parameters")]
    NoGradient,
    #[error("a parameter is bound twice in one call; use it once, inside the block")]
    BoundTwice,
    #[error("%{value} is added to before it is stored")]
    AddedFirst { value: String },
    #[error("the model has no call {call}")]
    NoCall { call: usize },
    #[error("the step graph has no parameters")]
    StepGraph,
    #[error("the call binds no parameter to %{value}")]
    Unbound { value: String },
    // Where another error is.
    #[error("body @{body}: {why}")]
    InBody { body: String, why: Box<LoadError> },
    #[error("run of @{body}: {why}")]
    InRun { body: String, why: Box<LoadError> },
    #[error("%{value}: {why}")]
    OfValue { value: String, why: Box<LoadError> },
    /// A refusal of the backend, of the communicator or of an op's rule, in its words.
    #[error("{0}")]
    Refused(String),
}

impl LoadError {
    pub(super) fn in_body(self, body: &str) -> LoadError {
        LoadError::InBody { body: body.to_string(), why: Box::new(self) }
    }

    pub(super) fn in_run(self, body: &str) -> LoadError {
        LoadError::InRun { body: body.to_string(), why: Box::new(self) }
    }

    pub(super) fn of_value(self, value: &str) -> LoadError {
        LoadError::OfValue { value: value.to_string(), why: Box::new(self) }
    }
}

impl From<String> for LoadError {
    fn from(why: String) -> LoadError {
        LoadError::Refused(why)
    }
}
