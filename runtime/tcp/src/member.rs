//! The place of this process among those of a run, as launchers say it in the environment.

use super::secret::{SECRET, SECRET_FILE, Secret};
use std::env;
use std::fmt;
use std::net::IpAddr;

/// Variables of the number of this process and of the number of all: those of torchrun, else those of Slurm.
const NUMBER: [&str; 2] = ["RANK", "SLURM_PROCID"];
const COUNT: [&str; 2] = ["WORLD_SIZE", "SLURM_NTASKS"];

/// Variables that name the run, so that those of another one at the same port are turned away.
const RUN: [&str; 3] = ["MESHWRIGHT_RUN", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"];

/// The place of a process among those of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its number, from 0.
    pub number: usize,
    /// The number of all.
    pub count: usize,
    /// The name or address of the host of process 0.
    pub host: String,
    /// The port at which process 0 listens.
    pub port: u16,
    /// The name of the run; may be empty.
    pub run: String,
    /// The secret, which all processes of the run know and no stranger does.
    pub secret: Option<Secret>,
}

/// The network between the processes of a run that have no secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Network {
    /// Strangers may be on it: processes on several hosts need a secret.
    #[default]
    Open,
    /// Nobody else can reach it.
    Trusted,
}

/// The cause why a process has no place in a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotAMember {
    /// The environment does not say where it is.
    Unplaced(String),
    /// It has no secret and needs one, or has one that cannot be used.
    Secret(String),
}

impl fmt::Display for NotAMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotAMember::Unplaced(why) | NotAMember::Secret(why) => f.write_str(why),
        }
    }
}

/// The number that a launcher has given to this process, if one has started it.
pub fn process_number() -> Option<usize> {
    NUMBER.iter().find_map(|name| env::var(name).ok()?.parse().ok())
}

impl Member {
    /// Reads `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT`, and the secret, `MESHWRIGHT_SECRET` or `MESHWRIGHT_SECRET_FILE`.
    ///
    /// # Errors
    /// One is missing or out of its range, or an open network needs a secret and there is none.
    pub fn from_env(network: Network) -> Result<Member, NotAMember> {
        let secret = Secret::from_env().map_err(NotAMember::Secret)?;
        Member::read(network, secret, |name| env::var(name).ok().filter(|text| !text.is_empty()))
    }

    fn read(
        network: Network,
        secret: Option<Secret>,
        get: impl Fn(&str) -> Option<String>,
    ) -> Result<Member, NotAMember> {
        let member = Member { secret, ..Member::placed(get)? };
        if member.secret.is_none() && network == Network::Open && member.count > 1 && !member.is_local() {
            return Err(NotAMember::Secret(format!(
                "MASTER_ADDR is {}, and anybody who reaches its port could take part: neither {SECRET} nor {SECRET_FILE} is set",
                member.host
            )));
        }
        Ok(member)
    }

    /// The place alone, without a secret.
    fn placed(get: impl Fn(&str) -> Option<String>) -> Result<Member, NotAMember> {
        let [number, all] = [Variable::first(&NUMBER, &get)?, Variable::first(&COUNT, &get)?];
        let (own, count) = (number.number()?, all.number()?);
        if own >= count {
            return Err(NotAMember::Unplaced(format!("{} is {own}, and {} is {count}", number.name, all.name)));
        }
        let host = Variable::first(&["MASTER_ADDR"], &get)?.text;
        let port = Variable::first(&["MASTER_PORT"], &get)?.number()?;
        // The agent of torchrun itself may listen at the port that it states.
        let taken = get("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|text| text.eq_ignore_ascii_case("true"));
        let next = u16::try_from(port + usize::from(taken)).ok().filter(|_| port > 0);
        let port =
            next.ok_or_else(|| NotAMember::Unplaced(format!("MASTER_PORT is {port}, and a port is 1 to 65535")))?;
        let run = Variable::first(&RUN, &get).map(|run| run.text).unwrap_or_default();
        Ok(Member { number: own, count, host, port, run, secret: None })
    }

    /// True if all processes are on one host, which need not hear others.
    pub(crate) fn is_local(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

/// A variable of the environment that is set.
struct Variable {
    name: &'static str,
    text: String,
}

impl Variable {
    /// The first of these that is set.
    fn first(names: &[&'static str], get: impl Fn(&str) -> Option<String>) -> Result<Variable, NotAMember> {
        let found = names.iter().find_map(|name| Some(Variable { name, text: get(name)? }));
        found.ok_or_else(|| NotAMember::Unplaced(format!("{} is not set", names.join(" or "))))
    }

    fn number(&self) -> Result<usize, NotAMember> {
        let Variable { name, text } = self;
        text.trim().parse().map_err(|_| NotAMember::Unplaced(format!("{name} is `{text}`, not a number")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Member, String> {
        read_in(Network::Trusted, variables)
    }

    fn read_in(network: Network, variables: &[(&str, &str)]) -> Result<Member, String> {
        let get = |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| value.to_string());
        let secret = get(SECRET).map(|text| Secret::of(&text, SECRET)).transpose()?;
        Member::read(network, secret, get).map_err(|why| why.to_string())
    }

    const PLACE: [(&str, &str); 2] = [("MASTER_ADDR", "node1"), ("MASTER_PORT", "29500")];

    #[test]
    fn variables_of_torchrun_come_before_those_of_slurm() {
        let slurm = [("SLURM_PROCID", "3"), ("SLURM_NTASKS", "4"), ("SLURM_JOB_ID", "77")];
        let member = read(&[&PLACE[..], &slurm].concat()).unwrap();
        let want =
            Member { number: 3, count: 4, host: "node1".to_string(), port: 29500, run: "77".to_string(), secret: None };
        assert_eq!(member, want);
        let torchrun = [("RANK", "0"), ("WORLD_SIZE", "2"), ("TORCHELASTIC_USE_AGENT_STORE", "True")];
        let member = read(&[&PLACE[..], &slurm, &torchrun].concat()).unwrap();
        assert_eq!(member, Member { number: 0, count: 2, port: 29501, ..want });
        assert!(!member.is_local() && Member { host: "127.0.0.1".to_string(), ..member }.is_local());
    }

    #[test]
    fn processes_on_several_hosts_need_a_secret_or_trust() {
        let numbers = [("RANK", "0"), ("WORLD_SIZE", "2")];
        let given = |place: &[(&str, &str)]| read_in(Network::Open, &[&numbers[..], place].concat());
        let refused = given(&PLACE).unwrap_err();
        assert!(refused.contains("neither MESHWRIGHT_SECRET nor MESHWRIGHT_SECRET_FILE is set"), "{refused}");
        assert!(given(&[&PLACE[..], &[("MESHWRIGHT_SECRET", "0123456789abcdef")]].concat()).unwrap().secret.is_some());
        assert!(given(&[("MASTER_ADDR", "localhost"), PLACE[1]]).is_ok());
        assert!(read(&[&numbers[..], &PLACE].concat()).is_ok());
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let refused = |rank, size, more: &[(&str, &str)]| {
            read(&[&[("RANK", rank), ("WORLD_SIZE", size)][..], more].concat()).unwrap_err()
        };
        assert_eq!(read(&[]), Err("RANK or SLURM_PROCID is not set".to_string()));
        assert_eq!(refused("0", "2", &PLACE[1..]), "MASTER_ADDR is not set");
        assert_eq!(refused("x", "2", &PLACE), "RANK is `x`, not a number");
        assert_eq!(refused("2", "2", &PLACE), "RANK is 2, and WORLD_SIZE is 2");
        let port = [("MASTER_ADDR", "a"), ("MASTER_PORT", "65536")];
        assert_eq!(refused("0", "1", &port), "MASTER_PORT is 65536, and a port is 1 to 65535");
    }
}
