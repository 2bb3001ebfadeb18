// The trainings of training_program, each in the file of its name. They take main's arguments, without the
// program's name, and return its exit code.
#pragma once

int joining(int argc, char** argv);
int paced_training(int argc, char** argv);
int straggling(int argc, char** argv);
