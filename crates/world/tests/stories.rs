//! The stories of the proving ground. One program for all of them: each that links five protocols takes most of a minute to build.

#[macro_use]
mod suite;

mod broken_links;
mod by_property;
mod candidates;
mod connectivity;
mod constrained_election;
mod defects;
mod defects_blazingmq;
mod defects_gmt2000;
mod defects_paxos;
mod defects_shared;
mod defects_zab;
mod eventually;
mod every;
mod every_blazingmq;
mod every_gmt2000;
mod every_operation;
mod every_paxos;
mod every_zab;
mod found;
mod full_disk;
mod grammar;
mod hostile;
mod hostile_members;
mod judges;
mod laboratory;
mod lying_disk;
mod searching;
mod seeds;
mod sixth;
mod succession;
mod waiting;
mod witnesses;
