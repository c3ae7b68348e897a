//! The machine: its networks, its files, its terminal.

pub mod network;
pub mod private_files;
pub mod table;
