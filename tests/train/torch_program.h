// The mains of torch_program, which has several names. They take main's arguments and return its exit code.
#pragma once

int bare_program(int argc, char** argv);
int deadlocking(int argc, char** argv);
int export_models(int argc, char** argv);
int gpt_step(int argc, char** argv);
int launching(int argc, char** argv);
int many_fits(int argc, char** argv);
int metric_files(int argc, char** argv);
int mistaken(int argc, char** argv);
int own_training(int argc, char** argv);
int straggling(int argc, char** argv);
