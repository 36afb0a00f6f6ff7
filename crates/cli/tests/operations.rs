//! Stories of operators: the page of operations, exit codes, the manual, packages and what is watched.
//!
//! One program for all of them: linking costs more than running.

mod support;

mod operations {
    mod console;
    mod exit_codes;
    mod json;
    mod manual;
    mod monitoring;
    mod newcomers;
    mod packaging;
    mod reports;
}
