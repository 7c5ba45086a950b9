//! How the processes of a job are started.

use crate::job::Job;
use serde::Serialize;

/// Launcher of the processes of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Launch {
    /// `torchrun`, once on each node.
    #[default]
    Torchrun,
    /// Slurm: `sbatch` of the script.
    Slurm,
    /// The script itself, once on each node.
    Bare,
}

impl Launch {
    /// All, by name.
    pub const ALL: [(&str, Launch); 3] =
        [("torchrun", Launch::Torchrun), ("slurm", Launch::Slurm), ("bare", Launch::Bare)];
}

/// The nodes of a job, and the processes of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Nodes {
    pub(crate) count: u64,
    pub(crate) processes: u64,
}

impl Nodes {
    /// Full nodes if the devices fill them. Otherwise each node has the largest equal share of all devices, as launchers start
    /// as many processes on every node.
    pub(crate) fn of(job: &Job) -> Nodes {
        let devices = job.parallel.devices().max(1);
        let most = job.per_node.clamp(1, devices);
        let processes = (1..=most).rev().find(|&share| devices.is_multiple_of(share)).unwrap_or(1);
        Nodes { count: devices / processes, processes }
    }

    /// A sentence, if nodes are not full.
    pub(crate) fn told(self, job: &Job) -> Option<String> {
        let full = job.per_node.clamp(1, job.parallel.devices().max(1));
        (self.processes < full)
            .then(|| format!("{} nodes with {} of their {} devices each", self.count, self.processes, job.per_node))
    }
}

/// Lines of `#SBATCH`, which are in front of all commands.
pub(crate) fn directives(job: &Job) -> String {
    let Nodes { count, processes } = Nodes::of(job);
    match job.launch {
        Launch::Torchrun | Launch::Bare => String::new(),
        Launch::Slurm => {
            // Nodes whose devices NVLink joins are one block of the topology.
            let segment = (job.domain / job.per_node.max(1)).min(count);
            let segment = if segment > 1 { format!("#SBATCH --segment={segment}\n") } else { String::new() };
            format!(
                "#SBATCH --nodes={count}\n#SBATCH --ntasks-per-node={processes}\n#SBATCH --gpus-per-node={processes}\n\
                 #SBATCH --distribution=block\n{segment}#SBATCH --exclusive\n"
            )
        }
    }
}

/// The commands of bash that start a Python program with its arguments.
pub(crate) fn bash(job: &Job, program: &str) -> String {
    let Nodes { count, processes } = Nodes::of(job);
    let world = count * processes;
    match job.launch {
        Launch::Torchrun if count == 1 => format!("torchrun --standalone --nproc-per-node {processes} {program}\n"),
        Launch::Torchrun => format!(
            "# Run it on each of the {count} nodes, with HEAD set to the name of the first one.\n\
             torchrun --nproc-per-node {processes} --nnodes {count} --rdzv-backend c10d \\\n    \
             --rdzv-id \"${{RUN:-meshwright}}\" --rdzv-endpoint \"${{HEAD:?the name of the first node}}:29500\" \\\n    {program}\n"
        ),
        // Ranks fill node after node, as the prediction places them.
        Launch::Slurm => format!(
            "export MASTER_ADDR=\"$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\" MASTER_PORT=29500 WORLD_SIZE={world}\n\
             srun --kill-on-bad-exit=1 bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID exec python \"$@\"' python \\\n    {program}\n"
        ),
        Launch::Bare => format!(
            "# Run it on each of the {count} nodes, with HEAD set to the name of the first one, and NODE to 0, 1, ..\n\
             export MASTER_ADDR=\"${{HEAD:-localhost}}\" MASTER_PORT=29500 WORLD_SIZE={world}\n\
             processes=()\nfor local in $(seq 0 {last}); do\n    \
             RANK=$(( ${{NODE:-0}} * {processes} + local )) LOCAL_RANK=$local python {program} &\n    \
             processes+=($!)\ndone\nfor process in \"${{processes[@]}}\"; do wait \"$process\" || exit; done\n",
            last = processes - 1
        ),
    }
}
