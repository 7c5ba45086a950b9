//! Memory that the process may still allocate: free memory of the machine, less the limits on the process.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the bytes that the process may still allocate, or `None` if the system does not report any figure. The least
/// of the machine's free memory, the cgroups' limits and the process's limits counts.
pub fn free_memory() -> Option<u64> {
    let system = System { root: PathBuf::from("/") };
    [system.available(), system.cgroups(), system.limits().map(|[data, _]| data)].into_iter().flatten().min()
}

/// Returns the bytes of address space that the process may still reserve. Reserved memory counts even if it is never
/// touched.
pub(super) fn free_addresses() -> Option<u64> {
    System { root: PathBuf::from("/") }.limits().map(|[_, addresses]| addresses)
}

/// Root of the files in which Linux reports memory and limits.
struct System {
    root: PathBuf,
}

impl System {
    fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    fn number(&self, path: PathBuf) -> Option<u64> {
        self.read(path)?.trim().parse().ok()
    }

    /// Bytes available to a new process (`man 5 proc_meminfo`).
    fn available(&self) -> Option<u64> {
        kilobytes(&self.read("proc/meminfo")?, "MemAvailable:")
    }

    /// Bytes that the process may still allocate under RLIMIT_DATA and RLIMIT_AS.
    fn limits(&self) -> Option<[u64; 2]> {
        let (limits, status) = (self.read("proc/self/limits")?, self.read("proc/self/status")?);
        let names = [("Max data size", "VmData:"), ("Max address space", "VmSize:")];
        Some(names.map(|(limit, used)| {
            let limit = limits.lines().find_map(|line| line.strip_prefix(limit)?.split_whitespace().next());
            let limit = limit.and_then(|soft| soft.parse::<u64>().ok());
            limit.map_or(u64::MAX, |limit| limit.saturating_sub(kilobytes(&status, used).unwrap_or(0)))
        }))
    }

    /// Bytes that the process's cgroups leave, for versions 1 and 2; `None` if they set no limit.
    fn cgroups(&self) -> Option<u64> {
        let own = self.read("proc/self/cgroup")?;
        let free = own.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            match controllers {
                "" => self.cgroup("sys/fs/cgroup", path, &VERSION_2),
                _ if controllers.split(',').any(|name| name == "memory") => {
                    self.cgroup("sys/fs/cgroup/memory", path, &VERSION_1)
                }
                _ => None,
            }
        });
        free.min()
    }

    /// Least bytes that a cgroup and its ancestors leave. In a container the path may be the one outside of it; then
    /// only the root exists.
    fn cgroup(&self, mount: &str, path: &str, names: &Names) -> Option<u64> {
        let path = Path::new(path.trim_start_matches('/'));
        let folders = path.ancestors().map(|group| Path::new(mount).join(group));
        folders.filter_map(|folder| self.group(&folder, names)).min()
    }

    fn group(&self, folder: &Path, names: &Names) -> Option<u64> {
        let (limit, used) = (self.number(folder.join(names.limit))?, self.number(folder.join(names.used))?);
        let stat = self.read(folder.join("memory.stat")).unwrap_or_default();
        // The kernel drops file pages when memory is needed.
        let cached = names.cached.map(|name| {
            let value = stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
            value.unwrap_or(0)
        });
        Some(limit.saturating_sub(used.saturating_sub(cached.iter().sum())))
    }
}

/// File names of a cgroup version, and the keys of `memory.stat`.
struct Names {
    limit: &'static str,
    used: &'static str,
    cached: [&'static str; 2],
}

const VERSION_2: Names =
    Names { limit: "memory.max", used: "memory.current", cached: ["inactive_file ", "active_file "] };
const VERSION_1: Names = Names {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: ["total_inactive_file ", "total_active_file "],
};

/// Returns the value after a name in bytes; the file states KiB.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system root with these files.
    fn system(name: &str, files: &[(&str, &str)]) -> System {
        let root = std::env::temp_dir().join(format!("meshwright-free-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        System { root }
    }

    impl Drop for System {
        fn drop(&mut self) {
            if self.root != Path::new("/") {
                let _ = fs::remove_dir_all(&self.root);
            }
        }
    }

    #[test]
    fn memory_of_the_machine() {
        let text = "MemTotal:       24531372 kB\nMemFree:        20133652 kB\nMemAvailable:   23567084 kB\n";
        assert_eq!(system("machine", &[("proc/meminfo", text)]).available(), Some(23_567_084 * 1024));
        assert_eq!(system("old", &[("proc/meminfo", "MemTotal: 1 kB\n")]).available(), None);
    }

    #[test]
    fn limits_of_the_process() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max data size             unlimited            unlimited            bytes     \n\
                      Max address space         6144000              unlimited            bytes     \n";
        let status = "VmSize:\t    2000 kB\nVmData:\t    1000 kB\n";
        let files = [("proc/self/limits", limits), ("proc/self/status", status)];
        assert_eq!(system("limits", &files).limits(), Some([u64::MAX, 6_144_000 - 2_048_000]));
        assert_eq!(system("none", &[]).limits(), None);
    }

    #[test]
    fn the_tightest_group_of_either_version_counts() {
        let files = [
            ("proc/self/cgroup", "0::/jobs/one\n"),
            ("sys/fs/cgroup/jobs/one/memory.max", "max\n"),
            ("sys/fs/cgroup/jobs/one/memory.current", "5\n"),
            ("sys/fs/cgroup/jobs/memory.max", "1000\n"),
            ("sys/fs/cgroup/jobs/memory.current", "700\n"),
            ("sys/fs/cgroup/jobs/memory.stat", "anon 600\nactive_file 60\ninactive_file 30\n"),
            ("sys/fs/cgroup/memory.max", "5000\n"),
            ("sys/fs/cgroup/memory.current", "800\n"),
        ];
        assert_eq!(system("two", &files).cgroups(), Some(390));
        let files = [
            ("proc/self/cgroup", "12:cpu,cpuacct:/\n4:memory:/docker/elsewhere\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "500\n"),
            ("sys/fs/cgroup/memory/memory.stat", "total_active_file 100\ntotal_inactive_file 0\n"),
        ];
        assert_eq!(system("one", &files).cgroups(), Some(1600));
        assert_eq!(system("free", &[("proc/self/cgroup", "0::/\n")]).cgroups(), None);
    }
}
