//! The short form of every row of the torture rig: a few seconds each. `make torture` has the rest.

use lariat_torture::campaign::short;

#[test]
fn row_1_a_number_that_was_given_out_again_is_not_signalled() {
    short(1);
}

#[test]
fn row_2_of_a_tree_that_was_ended_nothing_is_left() {
    short(2);
}

#[test]
fn row_3_an_exit_is_told_right_or_not_at_all() {
    short(3);
}

#[test]
fn row_4_an_agent_outlives_those_who_hold_it() {
    short(4);
}

#[test]
fn s21_row_5_whatever_the_crash_what_was_asked_is_completed() {
    short(5);
}

#[test]
fn row_6_what_was_acknowledged_outlives_a_power_cut() {
    short(6);
}

#[test]
fn row_7_of_many_at_once_one_wins() {
    short(7);
}

#[test]
fn row_10_a_secret_stays_where_it_belongs() {
    short(10);
}

#[test]
fn row_11_nothing_that_acts_is_printed() {
    short(11);
}

#[test]
fn row_14_nothing_is_resurrected_doubled_or_lost() {
    short(14);
}

#[test]
fn nemesis_everything_at_once_checked_from_outside() {
    short(0);
}
