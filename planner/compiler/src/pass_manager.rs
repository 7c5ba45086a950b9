//! The list of passes, and the loop that runs it over a file.

use crate::compile_error::CompileError;
use crate::pass::{Context, Level, Pass, PassInfo};
use crate::passes;
use ir::catalogue::Code;
use ir::diag::{Coded, nearest};
use ir::text::File;
use ir::verify;
use scheduler::schedules;
use tracing::debug_span;

/// Passes in execution order.
///
/// A program of its own adds a pass to the compiler's:
///
/// ```
/// use ir::text::File;
/// use meshwright_compiler::compile_error::CompileError;
/// use meshwright_compiler::pass::{Context, Level, Pass, PassInfo};
/// use meshwright_compiler::pass_manager::PassManager;
///
/// struct CountCalls<'a>(&'a mut usize);
///
/// impl Pass for CountCalls<'_> {
///     fn info(&self) -> PassInfo {
///         PassInfo {
///             name: "count_calls",
///             does: "count the calls of the model",
///             why_here: "after partition, which may split calls",
///             reads: Level::Staged,
///             writes: Level::Staged,
///         }
///     }
///
///     fn run(&mut self, file: &mut File, _: &mut Context<'_>) -> Result<(), CompileError> {
///         *self.0 = file.model.calls.len();
///         Ok(())
///     }
/// }
///
/// let mut calls = 0;
/// let mut passes = PassManager::standard();
/// passes.insert_after("partition", CountCalls(&mut calls))?;
/// let names: Vec<&str> = passes.infos().map(|info| info.name).collect();
/// assert!(names.windows(2).any(|pair| pair == ["partition", "count_calls"]));
/// # Ok::<(), meshwright_compiler::pass_manager::UnknownPass>(())
/// ```
pub struct PassManager<'a> {
    passes: Vec<Box<dyn Pass + 'a>>,
}

/// Error: no pass has a name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no pass `{name}`")]
pub struct UnknownPass {
    /// The name.
    pub name: String,
    /// Names of all passes, in order.
    pub known: Vec<&'static str>,
}

/// Old and new names of passes.
const RENAMED: [(&str, &str); 6] = [
    ("refine", "build_mesh"),
    ("seed", "annotate"),
    ("expand", "decompose"),
    ("cut", "partition"),
    ("emit", "codegen"),
    ("memory", "assign_buffers"),
];

impl Coded for UnknownPass {
    fn code(&self) -> Option<Code> {
        Some(Code::UnknownPass)
    }

    fn help(&self) -> Option<String> {
        let renamed = RENAMED.iter().find(|(old, _)| *old == self.name);
        let near = match (renamed, nearest(&self.name, self.known.iter().copied())) {
            (Some((old, new)), _) => format!("`{old}` is now `{new}`; "),
            (None, Some(near)) => format!("did you mean `{near}`? "),
            (None, None) => String::new(),
        };
        Some(format!("{near}the passes are, in order: {}", self.known.join(", ")))
    }
}

impl<'a> PassManager<'a> {
    /// All passes from a model to its program.
    pub fn standard() -> PassManager<'a> {
        PassManager { passes: passes::all() }
    }

    /// Descriptions of the passes, in order.
    pub fn infos(&self) -> impl Iterator<Item = PassInfo> + '_ {
        self.passes.iter().map(|pass| pass.info())
    }

    /// The pass of a name.
    ///
    /// # Errors
    /// No pass has the name.
    pub fn find(&self, name: &str) -> Result<PassInfo, UnknownPass> {
        Ok(self.passes[self.place(name)?].info())
    }

    /// Place of the pass of a name among all.
    pub(crate) fn place(&self, name: &str) -> Result<usize, UnknownPass> {
        self.infos()
            .position(|info| info.name == name)
            .ok_or_else(|| UnknownPass { name: name.to_string(), known: self.infos().map(|info| info.name).collect() })
    }

    /// Inserts a pass before the pass of a name.
    ///
    /// # Errors
    /// No pass has the name.
    pub fn insert_before(&mut self, name: &str, pass: impl Pass + 'a) -> Result<(), UnknownPass> {
        let place = self.place(name)?;
        self.passes.insert(place, Box::new(pass));
        Ok(())
    }

    /// Inserts a pass after the pass of a name.
    ///
    /// # Errors
    /// No pass has the name.
    pub fn insert_after(&mut self, name: &str, pass: impl Pass + 'a) -> Result<(), UnknownPass> {
        let place = self.place(name)?;
        self.passes.insert(place + 1, Box::new(pass));
        Ok(())
    }

    /// Runs the passes in order, up to the one that the request stops after. A pass that is not needed reports nothing.
    ///
    /// # Errors
    /// The model is wrong, a pass refuses it, or a checker finds an internal error.
    pub fn run(&mut self, mut file: File, context: &mut Context<'_>) -> Result<File, CompileError> {
        schedules::find(&context.request().options.parallel.schedule)?;
        verify::verify_stated(&file.model).map_err(CompileError::Model)?;
        let is_stated = file.model.has_mesh && file.model.is_fully_specified();
        for pass in &mut self.passes {
            step(pass.as_mut(), &mut file, context, is_stated)?;
            if context.request().stop_after.as_deref() == Some(pass.info().name) {
                break;
            }
        }
        Ok(file)
    }
}

/// Runs one pass if it is needed, and its checker in any case. `is_stated`: the file states all shardings itself.
fn step(pass: &mut dyn Pass, file: &mut File, context: &mut Context<'_>, is_stated: bool) -> Result<(), CompileError> {
    let info = pass.info();
    if !info.reads.is_in(file) {
        let why = format!("it reads the level {:?}, which the file does not have yet", info.reads);
        return Err(CompileError::Fault { pass: info.name, why });
    }
    if !pass.is_needed(file, context)? {
        return if info.adds_level() { pass.verify(file, context) } else { Ok(()) };
    }
    let _span = debug_span!("pass", name = info.name).entered();
    if !pass.rewrite(file, context)? {
        return Ok(());
    }
    if info.writes <= Level::Differentiated {
        context.discard_costs();
    }
    context.observe(&info, file);
    // Where the file states all shardings, the passes could only repair what can be repaired.
    let is_of_file = is_stated && !info.adds_level();
    pass.verify(file, context).map_err(|error| if is_of_file { error } else { error.about_result_of(info.name) })
}
