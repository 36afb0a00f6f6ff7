//! The stories of a node. One program for all of them: each that links five protocols takes half a minute to build. `encrypted` is
//! beside it: it needs the one dam of a process, as `embedded` does.

mod descriptions;
mod embedded;
mod hostile_frames;
mod joining;
mod leadership;
mod lifelines;
mod replicated;
mod rolled_back;
mod slow_link;
mod strangers;
mod support;
mod versions;
