//! A client's credentials (`--user`, `--password`), and the verbs about users: `auth`, `user`, `role`.
//!
//! A command authenticates once, when it connects, and says the token with each request from then on; one that runs for longer than a token
//! counts authenticates again. Where users do not count it goes on without one, as etcdctl does.

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::sync::{OnceLock, PoisonError, RwLock};

use anyhow::{Result, bail};
use clap::builder::NonEmptyStringValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use hustings_api::etcdserverpb as pb;
use hustings_api::etcdserverpb::auth_client::AuthClient;
use hustings_api::{Client, EtcdError, authpb};
use serde_json::json;
use tokio::sync::Notify;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;

use crate::client::{connect, text, within};
use crate::exit::{Code, Exit};
use crate::keys::{range_of, with_range};
use crate::output::{Format, common, format_of, from_status, shown};

/// Token of each request of this process.
static TOKEN: RwLock<Option<MetadataValue<Ascii>>> = RwLock::new(None);

/// A request was refused because of it.
static REFUSED: Notify = Notify::const_new();

/// The password that was typed: nobody is asked twice.
static TYPED: OnceLock<String> = OnceLock::new();

/// The flags of a caller.
pub(crate) fn arguments() -> [Arg; 2] {
    [
        Arg::new("user")
            .long("user")
            .env("HUSTINGS_USER")
            .hide_env_values(true)
            .value_name("NAME[:PASSWORD]")
            .help("The user that asks; needed once users count"),
        Arg::new("password")
            .long("password")
            .env("HUSTINGS_PASSWORD")
            .hide_env_values(true)
            .help("The user's password, if --user does not give it; without either it is the first line of the input"),
    ]
}

/// The token of each request; `None` if the caller has not said who it is.
pub(crate) fn token() -> Option<String> {
    let token = TOKEN.read().unwrap_or_else(PoisonError::into_inner);
    token.as_ref().and_then(|token| token.to_str().ok()).map(str::to_owned)
}

/// Forgets the token, which has run out: the next connection gets a new one.
pub(crate) fn forget_token() {
    *TOKEN.write().unwrap_or_else(PoisonError::into_inner) = None;
}

/// A request with what this process says of its caller.
pub(crate) fn asked<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = TOKEN.read().unwrap_or_else(PoisonError::into_inner).clone() {
        request.metadata_mut().insert("token", token);
    }
    request
}

/// Name and password of the caller, if it says who it is; asks for a password that is not given.
pub(crate) fn given(matches: &ArgMatches) -> Result<Option<(String, String)>> {
    let Some((user, password)) = named(matches) else { return Ok(None) };
    let password = match password {
        Some(password) => password,
        None => match TYPED.get() {
            Some(typed) => typed.clone(),
            None => {
                let typed = read_password(&format!("password of {user}: "))?;
                TYPED.get_or_init(|| typed).clone()
            }
        },
    };
    Ok(Some((user, password)))
}

/// Places in which something is given, the nearest first: it wins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    CommandLine,
    Variable,
    VariableOfEtcdctl,
}

/// Name of the caller, and the password that was given beside it, if it says who it is. Nobody is asked for one: a process that runs for
/// long has its password in a file.
pub(crate) fn named(matches: &ArgMatches) -> Option<(String, Option<String>)> {
    let given = |name: &str, etcdctl: &str| {
        let place = match matches.value_source(name) {
            Some(ValueSource::EnvVariable) => Place::Variable,
            _ => Place::CommandLine,
        };
        let flag = matches.get_one::<String>(name).cloned().map(|value| (place, value));
        let flag = flag.or_else(|| Some((Place::VariableOfEtcdctl, std::env::var(etcdctl).ok()?)));
        flag.filter(|(_, value)| !value.is_empty())
    };
    let (nearer, user) = given("user", "ETCDCTL_USER")?;
    // A password behind the name counts if no other one is given at a place as near.
    let password = given("password", "ETCDCTL_PASSWORD");
    Some(match (user.split_once(':'), password) {
        (Some((name, beside)), password) if password.as_ref().is_none_or(|(place, _)| nearer < *place) => {
            (name.to_owned(), Some(beside.to_owned()))
        }
        (_, password) => {
            let password = password.map(|(_, password)| password);
            (user, password)
        }
    })
}

/// Proves who the caller is, if it says who.
pub(crate) async fn authenticate(matches: &ArgMatches, client: &Client) -> Result<()> {
    // A command that connects twice says the first one, until it is refused.
    if token().is_some() {
        return Ok(());
    }
    renew_token(matches, client).await
}

/// Whether a command ends because of who asks.
pub(crate) fn is_refusal(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Exit>().is_some_and(|exit| exit.code == Code::NotAllowed)
}

/// Waits until a request was refused because its token has run out.
pub(crate) async fn token_refused() {
    REFUSED.notified().await;
}

/// Looks at a refusal: one of the token wakes whoever waits for that.
pub(crate) fn note_refusal(status: &tonic::Status) {
    if EtcdError::of(status) == Some(EtcdError::InvalidAuthToken) {
        REFUSED.notify_one();
    }
}

/// Proves once more who the caller is: until there is a new token, requests have the old one.
pub(crate) async fn renew_token(matches: &ArgMatches, client: &Client) -> Result<()> {
    let Some((name, password)) = given(matches)? else { return Ok(()) };
    let asking = AuthClient::new(client.channel()).authenticate(pb::AuthenticateRequest { name, password }).await;
    match asking {
        Ok(answer) => {
            let token: MetadataValue<Ascii> = answer.into_inner().token.parse()?;
            *TOKEN.write().unwrap_or_else(PoisonError::into_inner) = Some(token);
            Ok(())
        }
        Err(status) if EtcdError::of(&status) == Some(EtcdError::AuthNotEnabled) => {
            forget_token();
            Ok(())
        }
        Err(status) => Err(from_status(&status)),
    }
}

/// Keeps what is typed off the screen until it is dropped.
struct Hidden(Termios);

impl Hidden {
    /// `None` where nobody types: the input is no terminal.
    fn begin() -> Option<Hidden> {
        let before = tcgetattr(std::io::stdin()).ok()?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(std::io::stdin(), OptionalActions::Flush, &silent).ok()?;
        Some(Hidden(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // A terminal that is gone shows nothing more anyway.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
        eprintln!();
    }
}

fn read_password(prompt: &str) -> Result<String> {
    eprint!("{prompt}");
    let mut line = String::new();
    let hidden = Hidden::begin();
    let read = std::io::stdin().read_line(&mut line);
    drop(hidden);
    read?;
    let password = line.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        bail!("no password is given: --password, HUSTINGS_PASSWORD, or the first line of the input");
    }
    Ok(password.to_owned())
}

/// The command lines of the verbs about users.
pub(crate) fn commands() -> [Command; 3] {
    let named = |name: &'static str, about: &'static str, what: &'static str| {
        common(
            Command::new(name)
                .about(about)
                .arg(Arg::new("name").required(true).value_parser(NonEmptyStringValueParser::new()).help(what)),
        )
    };
    let with_role = |command: Command| command.arg(Arg::new("role").required(true).help("The role"));
    let group = |name: &'static str, about: &'static str| Command::new(name).about(about).subcommand_required(true);
    [
        group("auth", "Switch the checks of users on or off")
            .subcommand(common(Command::new("enable").about("From now on each call needs a user who may make it")))
            .subcommand(common(Command::new("disable").about("From now on anybody may make any call")))
            .subcommand(common(Command::new("status").about("Show whether users count"))),
        group("user", "Show or change users")
            .subcommand(
                named("add", "Make a user", "Its name, or NAME:PASSWORD").arg(
                    Arg::new("no-password")
                        .long("no-password")
                        .action(ArgAction::SetTrue)
                        .help("Only a certificate with the name proves it"),
                ),
            )
            .subcommand(named("get", "Show a user's roles", "The user"))
            .subcommand(common(Command::new("list").about("Show all users")))
            .subcommand(named("delete", "Remove a user", "The user"))
            .subcommand(named("passwd", "Replace a user's password", "The user, or USER:PASSWORD"))
            .subcommand(with_role(named("grant-role", "Give a role to a user", "The user")))
            .subcommand(with_role(named("revoke-role", "Take a role from a user", "The user"))),
        group("role", "Show or change roles")
            .subcommand(named("add", "Make a role", "Its name"))
            .subcommand(named("get", "Show what a role may do", "The role"))
            .subcommand(common(Command::new("list").about("Show all roles")))
            .subcommand(named("delete", "Remove a role", "The role"))
            .subcommand(with_range(named("grant-permission", "Let a role do something", "The role").arg(
                Arg::new("kind").required(true).value_parser(["read", "write", "readwrite"]).help("What it may do"),
            )))
            .subcommand(with_range(named("revoke-permission", "Take a permission from a role", "The role"))),
    ]
}

fn auth(client: &Client) -> AuthClient<Channel> {
    AuthClient::new(client.channel())
}

/// Tells what was done.
fn done(matches: &ArgMatches, header: Option<pb::ResponseHeader>, what: &str) {
    let revision = header.unwrap_or_default().revision;
    match format_of(matches) {
        Format::Json => println!("{}", json!({ "apiVersion": "v1", "kind": "Change", "revision": revision })),
        Format::Table => println!("{what}"),
    }
}

fn list(matches: &ArgMatches, name: &str, found: &[String]) {
    match format_of(matches) {
        Format::Json => println!("{}", json!({ "apiVersion": "v1", "kind": "List", (name): found })),
        Format::Table => found.iter().for_each(|found| println!("{found}")),
    }
}

/// Runs `auth`, `user` or `role`.
pub(crate) async fn run(verb: &str, matches: &ArgMatches) -> Result<()> {
    let (action, matches) = matches.subcommand().expect("clap requires one");
    let client = connect(matches).await?;
    match verb {
        "auth" => run_auth(action, matches, &client).await,
        "user" => run_user(action, matches, &client).await.map_err(of_named),
        _ => run_role(action, matches, &client).await,
    }
}

/// The user that a command names is not there.
fn of_named(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Exit>() {
        Some(Exit { what, .. }) if what == EtcdError::UserNotFound.message() => Exit::with(Code::NotFound, what),
        _ => error,
    }
}

async fn run_auth(action: &str, matches: &ArgMatches, client: &Client) -> Result<()> {
    match action {
        "enable" => {
            let answer = within(matches, auth(client).auth_enable(asked(pb::AuthEnableRequest {}))).await?;
            done(matches, answer.header, "users count from now on");
        }
        "disable" => {
            let answer = within(matches, auth(client).auth_disable(asked(pb::AuthDisableRequest {}))).await?;
            done(matches, answer.header, "users do not count any more");
        }
        _ => {
            let answer = within(matches, auth(client).auth_status(asked(pb::AuthStatusRequest {}))).await?;
            let (enabled, revision) = (answer.enabled, answer.auth_revision);
            match format_of(matches) {
                Format::Json => {
                    println!(
                        "{}",
                        json!({ "apiVersion": "v1", "kind": "AuthStatus", "enabled": enabled, "auth_revision": revision })
                    )
                }
                Format::Table => println!("users count: {enabled}\nauth revision: {revision}"),
            }
        }
    }
    Ok(())
}

/// A name and a new password.
fn with_password(matches: &ArgMatches) -> Result<(String, String)> {
    match text(matches, "name").split_once(':') {
        Some((name, password)) => Ok((name.to_owned(), password.to_owned())),
        None => {
            let name = text(matches, "name").to_owned();
            let password = read_password(&format!("new password of {name}: "))?;
            Ok((name, password))
        }
    }
}

async fn run_user(action: &str, matches: &ArgMatches, client: &Client) -> Result<()> {
    let mut auth = auth(client);
    let name = || text(matches, "name").to_owned();
    match action {
        "add" => {
            let no_password = matches.get_flag("no-password");
            let (name, password) = if no_password { (name(), String::new()) } else { with_password(matches)? };
            let options = Some(authpb::UserAddOptions { no_password });
            let request = pb::AuthUserAddRequest { name, password, options, ..Default::default() };
            done(matches, within(matches, auth.user_add(asked(request))).await?.header, "the user is made");
        }
        "get" => {
            let answer = within(matches, auth.user_get(asked(pb::AuthUserGetRequest { name: name() }))).await?;
            list(matches, "roles", &answer.roles);
        }
        "list" => {
            let answer = within(matches, auth.user_list(asked(pb::AuthUserListRequest {}))).await?;
            list(matches, "users", &answer.users);
        }
        "delete" => {
            let answer = within(matches, auth.user_delete(asked(pb::AuthUserDeleteRequest { name: name() }))).await?;
            done(matches, answer.header, "the user is removed");
        }
        "passwd" => {
            let (name, password) = with_password(matches)?;
            let request = pb::AuthUserChangePasswordRequest { name, password, ..Default::default() };
            let answer = within(matches, auth.user_change_password(asked(request))).await?;
            done(matches, answer.header, "the password is replaced");
        }
        "grant-role" => {
            let request = pb::AuthUserGrantRoleRequest { user: name(), role: text(matches, "role").to_owned() };
            let answer = within(matches, auth.user_grant_role(asked(request))).await?;
            done(matches, answer.header, "the user has the role");
        }
        _ => {
            let request = pb::AuthUserRevokeRoleRequest { name: name(), role: text(matches, "role").to_owned() };
            let answer = within(matches, auth.user_revoke_role(asked(request))).await?;
            done(matches, answer.header, "the user does not have the role any more");
        }
    }
    Ok(())
}

async fn run_role(action: &str, matches: &ArgMatches, client: &Client) -> Result<()> {
    use authpb::permission::Type;
    let mut auth = auth(client);
    let role = || text(matches, "name").to_owned();
    match action {
        "add" => {
            let answer = within(matches, auth.role_add(asked(pb::AuthRoleAddRequest { name: role() }))).await?;
            done(matches, answer.header, "the role is made");
        }
        "get" => {
            let answer = within(matches, auth.role_get(asked(pb::AuthRoleGetRequest { role: role() }))).await?;
            let told = |permission: &authpb::Permission| {
                let kind = Type::try_from(permission.perm_type).unwrap_or_default().as_str_name().to_lowercase();
                match &permission.range_end[..] {
                    [] => format!("{kind} {}", shown(&permission.key)),
                    [0] => format!("{kind} [{}, ...)", shown(&permission.key)),
                    end => format!("{kind} [{}, {})", shown(&permission.key), shown(end)),
                }
            };
            list(matches, "permissions", &answer.perm.iter().map(told).collect::<Vec<_>>());
        }
        "list" => {
            let answer = within(matches, auth.role_list(asked(pb::AuthRoleListRequest {}))).await?;
            list(matches, "roles", &answer.roles);
        }
        "delete" => {
            let answer = within(matches, auth.role_delete(asked(pb::AuthRoleDeleteRequest { role: role() }))).await?;
            done(matches, answer.header, "the role is removed");
        }
        "grant-permission" => {
            let (key, range_end) = range_of(matches);
            let kind = match text(matches, "kind") {
                "read" => Type::Read,
                "write" => Type::Write,
                _ => Type::Readwrite,
            };
            let perm = Some(authpb::Permission { perm_type: kind as i32, key, range_end });
            let request = pb::AuthRoleGrantPermissionRequest { name: role(), perm };
            let answer = within(matches, auth.role_grant_permission(asked(request))).await?;
            done(matches, answer.header, "the role has the permission");
        }
        _ => {
            let (key, range_end) = range_of(matches);
            let request = pb::AuthRoleRevokePermissionRequest { role: role(), key, range_end };
            let answer = within(matches, auth.role_revoke_permission(asked(request))).await?;
            done(matches, answer.header, "the role does not have the permission any more");
        }
    }
    Ok(())
}
