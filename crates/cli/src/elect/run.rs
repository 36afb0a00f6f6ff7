//! `hustings run`: this command, only while I lead.

use super::notify::ReadyAs;
use super::sidecar::{OnLoss, Sidecar};
use super::warden::Containment;
use super::watchman::SOCKET_PATH_MAX;
use super::{caller_arguments, duration_argument, duration_of, election_of, own_id, start_logging, store_arguments};
use crate::exit::Code;
use anyhow::{Context, Result, bail};
use clap::builder::NonEmptyStringValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hustings_election::supervisor::{Cage, try_cell};
use hustings_election::{CampaignError, Named};
use std::path::PathBuf;

/// The command line of `run`.
pub(crate) fn command() -> Command {
    with_options(
        Command::new("run")
            .about("Run a command only while this process leads an election, and end it before anybody else may")
            .arg(Arg::new("election").long("election").required(true).value_name("NAME").help("Which election")),
        "campaign",
    )
}

/// Adds the options that `run` and `lock` have in common; they differ in what they do after a loss, where nothing is said of it.
pub(crate) fn with_options(command: Command, on_loss: &'static str) -> Command {
    command
        .after_help(
            "The command gets HUSTINGS_ELECTION, HUSTINGS_ID, HUSTINGS_FENCE_GENERATION, HUSTINGS_FENCE_NUMBER and, with --listen, \
             HUSTINGS_SOCKET. Its exit code is passed on; 75: the leadership was lost and the command stopped (with --on-loss exit), \
             125: the sidecar failed, 126 and 127: the command cannot be run or is not there, 128+N: a signal ended it.",
        )
        .args(store_arguments())
        .args(caller_arguments())
        .arg(Arg::new("id").long("id").value_name("NAME").value_parser(NonEmptyStringValueParser::new()).help("What others see [default: host name and process id]"))
        .arg(Arg::new("value").long("value").default_value("").help("What observers are told beside the id, like an address"))
        .arg(
            Arg::new("priority")
                .long("priority")
                .value_parser(value_parser!(u32))
                .default_value("0")
                .help("A leader hands over to a healthy candidate of a higher one"),
        )
        .arg(duration_argument("stop-grace", "2s", "What the command gets to stop by itself, after SIGTERM"))
        .arg(duration_argument("kill-margin", "500ms", "How long before the lease can end everything has been killed"))
        .arg(
            Arg::new("on-loss")
                .long("on-loss")
                .value_parser(["campaign", "exit"])
                .default_value(on_loss)
                .help("After a leadership was lost: stand for election again, or exit with 75"),
        )
        .arg(
            Arg::new("restart")
                .long("restart")
                .value_name("on-failure:N")
                .help("Start the command again, up to N times in one leadership, when it ends with a failure"),
        )
        .arg(Arg::new("health-command").long("health-command").value_name("COMMAND").help(
            "A shell command that says by its exit code whether this process may lead; asked each second, also before it leads and \
             while it waits. It gets HUSTINGS_LEADS (true or false), HUSTINGS_ELECTION and HUSTINGS_ID",
        ))
        .arg(
            Arg::new("pre-stop")
                .long("pre-stop")
                .value_name("COMMAND")
                .help("A shell command that runs within the stop grace, before the command is asked to stop"),
        )
        .arg(Arg::new("listen").long("listen").value_name("unix:PATH").help("Answer GET /leader, /events, /metrics and POST /step-down, /health here"))
        .arg(
            Arg::new("notify")
                .long("notify")
                .value_parser(["candidate", "leader"])
                .default_value("candidate")
                .help("When systemd is told that this unit is ready (Type=notify): once it stands for election, or once it leads"),
        )
        .arg(
            Arg::new("contain")
                .long("contain")
                .value_parser(["group", "cgroup", "namespace"])
                .default_value("group")
                .help("How the command's processes are held together, from the loosest to the tightest; a level that this machine lacks is refused"),
        )
        .arg(Arg::new("command").required(true).num_args(1..).trailing_var_arg(true).allow_hyphen_values(true).action(ArgAction::Append).help("The command"))
}

fn restarts_of(matches: &ArgMatches) -> Result<u32> {
    let Some(text) = matches.get_one::<String>("restart") else { return Ok(0) };
    match text.strip_prefix("on-failure:").map(str::parse) {
        Some(Ok(count)) => Ok(count),
        _ => bail!("--restart {text:?} is not of the form on-failure:N"),
    }
}

/// The level that `--contain` asks for; tries whether this machine has it.
fn containment_of(level: &str) -> Result<Containment> {
    match level {
        "cgroup" => {
            let cage = Cage::new().context(
                "--contain cgroup: no control group can be made for the command; run as root, in a unit with Delegate=yes, \
                 or with --contain group",
            )?;
            cage.remove();
            Ok(Containment::ControlGroup)
        }
        "namespace" => {
            try_cell().context(
                "--contain namespace: no PID namespace can be made for the command; run as root with CAP_SYS_ADMIN, or let users \
                 make namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, \
                 kernel.apparmor_restrict_unprivileged_userns), or use --contain cgroup or group",
            )?;
            Ok(Containment::Namespace)
        }
        _ => Ok(Containment::Group),
    }
}

/// Runs it; gives the exit code.
pub(crate) fn run(matches: &ArgMatches) -> u8 {
    serve(matches, "election", false)
}

/// Runs a command once, under a lock.
pub(crate) fn lock(matches: &ArgMatches) -> u8 {
    serve(matches, "name", true)
}

fn serve(matches: &ArgMatches, name: &str, is_lock: bool) -> u8 {
    let sidecar = match sidecar_of(matches, name, is_lock) {
        Ok(sidecar) => sidecar,
        Err(error) => {
            crate::logging::say(format_args!("{error:#}"));
            return Code::Usage.number();
        }
    };
    if let Err(error) = start_logging() {
        crate::logging::say(format_args!("{error:#}"));
        return Code::Usage.number();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let outcome = runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(sidecar.run()));
    crate::logging::finish();
    outcome.unwrap_or_else(|error| {
        crate::logging::say(format_args!("{error:#}"));
        match error.downcast_ref::<CampaignError>() {
            Some(CampaignError::Timing(_) | CampaignError::Candidate(_)) => Code::Usage.number(),
            _ => Code::Sidecar.number(),
        }
    })
}

fn sidecar_of(matches: &ArgMatches, name: &str, is_lock: bool) -> Result<Sidecar> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let name = text(name).expect("it is required");
    let command = matches.get_many::<String>("command").into_iter().flatten().next();
    if let Some(word) = command.filter(|word| word.starts_with('-')) {
        bail!(
            "{word} is no option of this command, and no command begins with a dash: `--help` names the options, and COMMAND stands behind them"
        );
    }
    let id = text("id").unwrap_or_else(own_id);
    let (stop_grace, kill_margin) = (duration_of(matches, "stop-grace"), duration_of(matches, "kill-margin"));
    let named = Named::new(&id)
        .value(text("value").unwrap_or_default())
        .priority(*matches.get_one("priority").expect("it has a default"))
        .stop_grace(stop_grace)
        .kill_margin(kill_margin)
        // The warden kills what does not stop.
        .held_until_stopped();
    let containment = containment_of(&text("contain").expect("it has a default"))?;
    let socket = match text("listen") {
        None => None,
        Some(listen) => match listen.strip_prefix("unix:") {
            Some(path) if path.len() > SOCKET_PATH_MAX => bail!(
                "--listen {listen}: a socket's path has {SOCKET_PATH_MAX} bytes at most, and this one has {}: give a shorter one",
                path.len()
            ),
            Some(path) if !path.is_empty() => Some(PathBuf::from(path)),
            _ => bail!("--listen {listen:?} is not of the form unix:PATH"),
        },
    };
    Ok(Sidecar {
        election: election_of(matches, &name)?,
        named,
        id,
        stop_grace,
        kill_margin,
        on_loss: if text("on-loss").as_deref() == Some("exit") { OnLoss::Exit } else { OnLoss::Campaign },
        restarts: restarts_of(matches)?,
        must_run: is_lock,
        health_command: text("health-command"),
        pre_stop: text("pre-stop"),
        socket,
        ready_as: if text("notify").as_deref() == Some("leader") { ReadyAs::Leader } else { ReadyAs::Candidate },
        containment,
        command: matches.get_many::<String>("command").expect("it is required").cloned().collect(),
    })
}
