/**
 * A fake dispatcher: tests of hosts ask their hooks without a mesh, certificates or a cluster.
 *
 * <pre>{@code
 * try (FakeDispatcher mesh = FakeDispatcher.serving(ImagePolicy.host())) {
 *   Answer answer =
 *       mesh.review("imagepolicy.example.com", Requests.create("{\"apiVersion\": \"v1\", ...}"));
 *   assertFalse(answer.allowed());
 * }
 * }</pre>
 *
 * <p>It accepts every hook that a host offers and puts it in rotation. It matches nothing and knows
 * no failure policies: it shows what a host answers, not what the mesh makes of it.
 */
@NullMarked
package dev.portcullis.host.testing;

import org.jspecify.annotations.NullMarked;
