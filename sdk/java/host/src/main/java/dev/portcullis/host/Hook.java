package dev.portcullis.host;

/** The registration for a name and stage. */
record Hook(HookId id, Handler handler, HookOptions options, Complaints complaints) {}
